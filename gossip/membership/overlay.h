// SPDX-License-Identifier: Apache-2.0
// Whom a member watches where not everybody watches everybody: its neighbours in the network's
// graph, with whom it has links anyway, and its neighbours on a cycle through all members that is
// drawn anew for each epoch. Of the cycle the next ones that live: so it stays whole whoever dies,
// and graph and cycle together are an expander, on which a word is everywhere in O(log n) steps.
#pragma once

#include <functional>
#include <vector>

#include "core/protocol/peer_messages.h"

namespace starling::gossip::membership {

class Overlay {
 public:
  // `neighbours` of `self`, others than itself. Everybody draws the same cycle.
  Overlay(protocol::Member self, protocol::Member members, protocol::Epoch epoch,
          std::vector<protocol::Member> neighbours);

  // Ascending. O(n).
  std::vector<protocol::Member> watched(const std::function<bool(protocol::Member)>& is_dead) const;

 private:
  const protocol::Member self_;
  const std::vector<protocol::Member> neighbours_;
  std::vector<protocol::Member> cycle_;  // from `self` on, without it
};

}  // namespace starling::gossip::membership
