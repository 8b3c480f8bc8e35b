// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/far_neighbours.h"

#include <fmt/format.h>

#include <cmath>

namespace starling::gossip {
namespace {

std::string how_far(const Bounded& model) {
  if (!std::isfinite(model.distance)) return "has values that are not numbers or are too large";
  return fmt::format("is {:.3g} away from this peer's, much farther than the other neighbours'",
                     model.distance);
}

}  // namespace

std::optional<std::string> FarNeighbours::note(Member from, Exchange exchange,
                                               const Bounded& model) {
  if (!model.is_far) return far_.ended(from, exchange);
  if (!far_.is_first(from, exchange)) return std::nullopt;
  return fmt::format(
      "the model of {} in exchange {} {}: robust.rule = {} mixes {:.2g} of its weight; a line "
      "follows when this ends",
      names_[from], exchange, how_far(model), rule_, model.kept);
}

}  // namespace starling::gossip
