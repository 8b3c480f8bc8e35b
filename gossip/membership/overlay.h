// SPDX-License-Identifier: Apache-2.0
// Whom a member watches where not everybody watches everybody: its neighbours in the network's
// graph, with whom it has links anyway, and its neighbours on a random cycle through all members.
// Of the cycle the next ones that live: so it stays whole whoever dies, and graph and cycle
// together are an expander, on which a word is everywhere in O(log n) steps. A hash of run and name
// orders the cycle, so that an epoch with one member more or less has all its other edges.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/protocol/peer_messages.h"

namespace starling::gossip::membership {

class Overlay {
 public:
  // The members' names, each once; `neighbours` of `self`, others than itself. All members of a run
  // make the same cycle.
  Overlay(protocol::Member self, std::span<const std::string> names, std::string_view run,
          std::vector<protocol::Member> neighbours);

  bool is_neighbour(protocol::Member member) const;
  // Ascending. O(n).
  std::vector<protocol::Member> watched(const std::function<bool(protocol::Member)>& is_dead) const;

 private:
  const protocol::Member self_;
  const std::vector<protocol::Member> neighbours_;
  std::vector<protocol::Member> cycle_;  // from `self` on, without it
};

}  // namespace starling::gossip::membership
