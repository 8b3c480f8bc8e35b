// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/robust_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/counted.h"
#include "topologies/robustness.h"

namespace starling::gossip {
namespace {

constexpr std::uint64_t kStepsSeen = 4;

topologies::Node most_cut_off(const RobustOptions& robust, const topologies::Topology& topology) {
  const std::uint64_t period = topology.period() == 0 ? kStepsSeen : topology.period();
  topologies::Node most = 0;
  for (std::uint64_t step = 0; step < std::min(period, kStepsSeen); ++step) {
    most = std::max(most, topologies::nodes_cut_off(*topology.at(step), robust.rule == "clip",
                                                    static_cast<std::size_t>(robust.bad)));
  }
  return most;
}

std::string bounds_of(const RobustOptions& robust, const topologies::Topology& topology) {
  const auto report = topologies::analyse(topology);
  const auto bears = report ? topologies::robustness(topology, *report) : std::nullopt;
  if (!bears) {
    return fmt::format(
        "how many lying neighbours {} bears is known only for static graphs with symmetric "
        "weights: robust.rule = {} may or may not hold",
        topology.name(), robust.rule);
  }
  const auto bad = static_cast<topologies::Node>(robust.bad);
  const auto sure = robust.rule == "clip" ? bears->clip_sure : bears->remove_sure;
  if (bad <= sure) return "";
  const std::string what =
      fmt::format("with {} of each node, as robust.bad says, ", counted(bad, "lying neighbour"));
  if (bad <= bears->possible) {
    return fmt::format("{} (mu2 {:.4g}): {}robust.rule = {} may hold, but is sure only up to {}",
                       topology.name(), bears->mu2.value, what, robust.rule, sure);
  }
  return fmt::format(
      "{} (mu2 {:.4g}): {}no rule is sure to hold, which needs {} at most here; take a topology "
      "with more edges, see 'starling-gossip topology'",
      topology.name(), bears->mu2.value, what, bears->possible);
}

}  // namespace

std::vector<std::string> robust_warnings(const RobustOptions& robust,
                                         const topologies::Topology& topology) {
  std::vector<std::string> sentences;
  if (!robust.is_on() || robust.bad == 0 || topology.nodes() < 2) return sentences;
  if (const auto cut_off = most_cut_off(robust, topology); cut_off > 0) {
    sentences.push_back(fmt::format(
        "robust.rule = {} with robust.bad = {} leaves {} of {} nodes of {} nothing to mix in some "
        "step: a node needs {} neighbours of equal weight",
        robust.rule, robust.bad, cut_off, topology.nodes(), topology.name(),
        robust.rule == "clip" ? 2 * robust.bad + 1 : robust.bad + 1));
  }
  if (std::string bounds = bounds_of(robust, topology); !bounds.empty()) {
    sentences.push_back(std::move(bounds));
  }
  return sentences;
}

}  // namespace starling::gossip
