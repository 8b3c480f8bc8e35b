// SPDX-License-Identifier: Apache-2.0
#include "gossip/membership/news_queue.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::gossip::membership {

NewsQueue::NewsQueue(std::size_t members, unsigned transmissions)
    : transmissions_(transmissions), entries_(members) {
  STARLING_CHECK(transmissions > 0);
}

void NewsQueue::add(protocol::Member member) {
  Entry& entry = entries_[member];
  entry.left = transmissions_;
  if (entry.at) {
    queue_.splice(queue_.begin(), queue_, *entry.at);
  } else {
    entry.at = queue_.insert(queue_.begin(), member);
  }
}

std::vector<protocol::Member> NewsQueue::take(std::size_t count, protocol::Member to) {
  std::vector<protocol::Member> taken;
  if (queue_.empty()) return taken;
  taken.reserve(std::min(count, queue_.size()));
  for (std::size_t turn = queue_.size(); turn > 0 && taken.size() < count; --turn) {
    const protocol::Member member = queue_.front();
    Entry& entry = entries_[member];
    if (member != to) {
      taken.push_back(member);
      --entry.left;
    }
    if (entry.left > 0) {
      queue_.splice(queue_.end(), queue_, queue_.begin());
    } else {
      queue_.pop_front();
      entry.at.reset();
    }
  }
  return taken;
}

}  // namespace starling::gossip::membership
