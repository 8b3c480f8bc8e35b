// SPDX-License-Identifier: Apache-2.0
#include "gossip/membership/overlay.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "core/base/rng.h"

namespace starling::gossip::membership {

using protocol::Member;

Overlay::Overlay(Member self, std::span<const std::string> names, std::string_view run,
                 std::vector<Member> neighbours)
    : self_(self), neighbours_(std::move(neighbours)), cycle_(names.size()) {
  std::vector<std::uint64_t> places;
  for (const std::string& name : names) {
    const StreamKey key{
        .seed = hash_name(run), .purpose = Purpose::kTopology, .node = hash_name(name)};
    places.push_back(Rng(key).next_u64());
  }
  std::iota(cycle_.begin(), cycle_.end(), 0U);
  std::ranges::sort(cycle_, {},
                    [&](Member member) { return std::tie(places[member], names[member]); });
  std::ranges::rotate(cycle_, std::ranges::find(cycle_, self_));
  cycle_.erase(cycle_.begin());
}

bool Overlay::is_neighbour(Member member) const {
  return std::ranges::find(neighbours_, member) != neighbours_.end();
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
