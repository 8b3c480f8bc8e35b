// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/far_neighbours.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/counted.h"

namespace starling::gossip {
namespace {

constexpr Exchange kQuiet = 16;  // who lies now and then is one case

std::string how_far(const Bounded& model) {
  if (!std::isfinite(model.distance)) return "has values that are not numbers or are too large";
  return fmt::format("is {:.3g} away from this peer's, much farther than the other neighbours'",
                     model.distance);
}

}  // namespace

std::optional<std::string> FarNeighbours::note(Member from, Exchange exchange,
                                               const Bounded& model) {
  const auto known = far_.find(from);
  if (model.is_far) {
    Far& far = far_[from];
    far.last = exchange;
    if (++far.models > 1) return std::nullopt;
    far.since = exchange;
    return fmt::format(
        "the model of {} in exchange {} {}: robust.rule = {} mixes {:.2g} of its weight; a line "
        "follows when this ends",
        names_[from], exchange, how_far(model), rule_, model.kept);
  }
  if (known == far_.end() || exchange < known->second.last + kQuiet) return std::nullopt;
  std::string line = ended(from, known->second);
  far_.erase(known);
  return line;
}

std::vector<std::string> FarNeighbours::finish() {
  std::vector<std::string> lines;
  for (const auto& [member, far] : far_) lines.push_back(ended(member, far));
  far_.clear();
  return lines;
}

std::string FarNeighbours::ended(Member member, const Far& far) const {
  return fmt::format("{} of {} from exchange {} to {} were too far from this peer's",
                     counted(far.models, "model"), names_[member], far.since, far.last);
}

}  // namespace starling::gossip
