// SPDX-License-Identifier: Apache-2.0
#include "gossip/membership/overlay.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "core/base/rng.h"

namespace starling::gossip::membership {

using protocol::Member;

Overlay::Overlay(Member self, Member members, protocol::Epoch epoch, std::vector<Member> neighbours)
    : self_(self), neighbours_(std::move(neighbours)), cycle_(members) {
  std::iota(cycle_.begin(), cycle_.end(), 0U);
  Rng({.seed = epoch, .purpose = Purpose::kTopology}).shuffle(std::span(cycle_));
  std::ranges::rotate(cycle_, std::ranges::find(cycle_, self_));
  cycle_.erase(cycle_.begin());
}

std::vector<Member> Overlay::watched(const std::function<bool(Member)>& is_dead) const {
  std::set<Member> watched(neighbours_.begin(), neighbours_.end());
  const auto lives = [&](Member member) { return !is_dead(member); };
  const auto next = std::ranges::find_if(cycle_, lives);
  if (next != cycle_.end()) {
    watched.insert(*next);
    watched.insert(*std::find_if(cycle_.rbegin(), cycle_.rend(), lives));
  }
  return {watched.begin(), watched.end()};
}

}  // namespace starling::gossip::membership
