// SPDX-License-Identifier: Apache-2.0
// What waits at links with a bandwidth of their own: messages pass such a link one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "core/base/archive.h"
#include "core/sim/network.h"

namespace starling::sim {

class LinkQueues {
 public:
  // When a message is through its link, seconds; alone on it, it would be at `alone`
  // (Network::pass). Called in the order in which messages are sent.
  double passes(const Network& network, const Network::Message& message, double alone) {
    const double seconds = network.link_seconds(message);
    if (seconds == 0) return alone;
    double& free = free_[link_of(message.from, message.to)];
    free = std::max(alone, free + seconds);
    return free;
  }
  // Whether a message is still passing it.
  bool busy(std::uint32_t from, std::uint32_t to, double time) const {
    const auto found = free_.find(link_of(from, to));
    return found != free_.end() && found->second > time;
  }
  void archive(Archive& state) {
    state.map(free_, [&](double& free) { state(free); });
  }

 private:
  std::unordered_map<std::uint64_t, double> free_;
};

}  // namespace starling::sim
