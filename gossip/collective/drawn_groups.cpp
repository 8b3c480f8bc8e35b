// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/drawn_groups.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace starling::collective {

using protocol::Exchange;
using protocol::Member;

std::vector<std::vector<Member>> GroupDraw::at(Exchange exchange) const {
  STARLING_CHECK(members > 0 && size > 0);
  std::vector<Member> order(members);
  std::iota(order.begin(), order.end(), Member{0});
  Rng rng({.seed = seed,
           .purpose = Purpose::kTopology,
           .node = hash_name("groups") + (exchange >> 32),
           .round = static_cast<std::uint32_t>(exchange)});
  rng.shuffle(std::span(order));
  const std::size_t count = (members - 1) / size + std::size_t{1};
  std::vector<std::vector<Member>> groups(count);
  for (std::size_t k = 0; k < count; ++k) {
    const auto begin = static_cast<std::ptrdiff_t>(members * k / count);
    const auto end = static_cast<std::ptrdiff_t>(members * (k + 1) / count);
    groups[k].assign(order.begin() + begin, order.begin() + end);
    std::ranges::sort(groups[k]);
  }
  return groups;
}

std::vector<Member> GroupDraw::group_of(Member member, Exchange exchange) const {
  for (std::vector<Member>& group : at(exchange)) {
    if (std::ranges::binary_search(group, member)) return std::move(group);
  }
  STARLING_CHECK(false);
}

}  // namespace starling::collective
