// SPDX-License-Identifier: Apache-2.0
#include "gossip/membership/heartbeats.h"

#include <algorithm>

namespace starling::gossip::membership {

using protocol::Member;

std::vector<Member> Heartbeats::take(std::span<const std::uint64_t> counts, TimePoint now) {
  std::vector<Member> raised;
  if (counts.size() != counts_.size()) return raised;
  for (Member member = 0; member < counts.size(); ++member) {
    if (static_cast<std::int64_t>(counts[member] - counts_[member]) <= 0) continue;
    counts_[member] = counts[member];
    risen_[member] = now;
    // One's own: of an earlier process, which this one goes on from.
    if (member != self_) raised.push_back(member);
  }
  return raised;
}

}  // namespace starling::gossip::membership
