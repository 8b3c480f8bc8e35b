// SPDX-License-Identifier: Apache-2.0
// About whom there is something to tell: each at most so many times, the latest first, then in
// turn. SWIM takes those told the fewest times first; a turn is nearly that, at no cost of order.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <vector>

#include "core/protocol/peer_messages.h"

namespace starling::gossip::membership {

class NewsQueue {
 public:
  // Requires: transmissions > 0, of each news.
  NewsQueue(std::size_t members, unsigned transmissions);
  NewsQueue(NewsQueue&&) = default;  // a copy would point into the original
  NewsQueue& operator=(NewsQueue&&) = default;

  // What is known of `member` has changed: it is told anew.
  void add(protocol::Member member);
  // At most `count` different members, none of them `to`; each is then told once more.
  std::vector<protocol::Member> take(std::size_t count, protocol::Member to);
  std::size_t size() const { return queue_.size(); }

 private:
  struct Entry {
    unsigned left = 0;  // transmissions
    std::optional<std::list<protocol::Member>::iterator> at;
  };

  unsigned transmissions_;
  std::vector<Entry> entries_;
  std::list<protocol::Member> queue_;  // each member at most once
};

}  // namespace starling::gossip::membership
