// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/reduce_shape.h"

#include <bit>

namespace starling::collective {

Shape choose_shape(const ShapeRule& rule, std::uint64_t members, std::uint64_t floats) {
  if (rule.choice == ShapeRule::Choice::kRing) return Shape::kRing;
  if (rule.choice == ShapeRule::Choice::kTree) return Shape::kTree;
  if (members < 2) return Shape::kTree;
  const auto parts = static_cast<double>(members);
  const auto depth = static_cast<double>(std::bit_width(members - 1));
  const double bytes = 4.0 * static_cast<double>(floats);
  const bool tree =
      bytes * (depth - (parts - 1) / parts) < rule.latency_bytes * (parts - 1 - depth);
  return tree ? Shape::kTree : Shape::kRing;
}

std::uint64_t segment_begin(std::uint64_t k, std::uint64_t members, std::uint64_t floats) {
  return k % members * floats / members;
}

std::uint64_t segment_size(std::uint64_t k, std::uint64_t members, std::uint64_t floats) {
  return (k % members + 1) * floats / members - segment_begin(k, members, floats);
}

std::uint64_t tree_levels(std::uint64_t index, std::uint64_t members) {
  if (index == 0) return static_cast<std::uint64_t>(std::bit_width(members - 1));
  return static_cast<std::uint64_t>(std::countr_zero(index));
}

std::uint64_t floats_sent(Shape shape, std::uint64_t index, std::uint64_t members,
                          std::uint64_t floats) {
  if (members < 2) return 0;
  if (shape == Shape::kRing) {
    return 2 * floats - segment_size(index + 1, members, floats) -
           segment_size(index + 2, members, floats);
  }
  std::uint64_t sends = index == 0 ? 0 : 1;
  for (std::uint64_t k = 0; k < tree_levels(index, members); ++k) {
    if (index + (std::uint64_t{1} << k) < members) ++sends;
  }
  return sends * floats;
}

}  // namespace starling::collective
