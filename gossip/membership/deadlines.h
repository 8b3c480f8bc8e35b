// SPDX-License-Identifier: Apache-2.0
// At most one deadline a member, and the earliest of them.
#pragma once

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip::membership {

class Deadlines {
 public:
  explicit Deadlines(std::size_t members) : times_(members) {}

  void set(protocol::Member member, TimePoint time) {
    clear(member);
    times_[member] = time;
    order_.emplace(time, member);
  }
  void clear(protocol::Member member) {
    if (times_[member]) order_.erase({*times_[member], member});
    times_[member].reset();
  }
  std::optional<TimePoint> next() const {
    if (order_.empty()) return std::nullopt;
    return order_.begin()->first;
  }
  // Removes one whose time has come.
  std::optional<protocol::Member> pop(TimePoint now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    const protocol::Member member = order_.begin()->second;
    clear(member);
    return member;
  }

 private:
  std::vector<std::optional<TimePoint>> times_;
  std::set<std::pair<TimePoint, protocol::Member>> order_;
};

}  // namespace starling::gossip::membership
