// SPDX-License-Identifier: Apache-2.0
// Which algorithm may run on which topology: what the proofs need, checked before the first step.
#include <fmt/format.h>

#include "core/base/check.h"
#include "gossip/algorithms/make_algorithm.h"

namespace starling::gossip {
namespace {

using topologies::Topology;

// Of a topology drawn anew for every step, so many steps stand for all.
constexpr std::uint64_t kDrawsChecked = 4;

Error misfit(const AlgorithmOptions& options, const Topology& topology, std::string_view why) {
  return rejected("algorithm-topology",
                  fmt::format("{} cannot run on {}: {}", options.name, topology.name(), why));
}

Result<void> check_doubly_stochastic(const AlgorithmOptions& options, const Topology& topology) {
  const std::uint64_t steps = topology.period() == 0 ? kDrawsChecked : topology.period();
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (topology.at(step)->doubly_stochastic()) continue;
    return misfit(
        options, topology,
        fmt::format("the weights of step {} are not doubly stochastic, so the mean of the "
                    "models would not be kept; use algorithm sgp, which corrects for it, "
                    "or an undirected topology with mixing \"metropolis\"",
                    step));
  }
  return {};
}

}  // namespace

Result<void> check_fit(const AlgorithmOptions& options, const Setting& setting) {
  if (traits(options).pattern == Pattern::kMean) return {};
  STARLING_CHECK(setting.topology != nullptr);
  return check_doubly_stochastic(options, *setting.topology);
}

Result<Plan> plan_algorithm(const AlgorithmOptions& options, const Setting& setting, Node nodes,
                            std::uint64_t seed) {
  STARLING_TRY(check_fit(options, setting));
  return Plan{.options = options,
              .traits = traits(options),
              .nodes = nodes,
              .lossy = setting.lossy,
              .seed = seed};
}

}  // namespace starling::gossip
