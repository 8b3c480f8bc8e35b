// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "gossip/simulation/asynchronous_simulation.h"
#include "gossip/simulation/synchronous_simulation.h"

namespace starling::gossip {

Error no_progress(std::uint64_t step) {
  return rejected("no-progress",
                  fmt::format("after step {} nodes always crash before their local steps are done: "
                              "raise nodes.crash-every, or lower train.local-steps",
                              step));
}

Error all_left(const std::string& when) {
  return rejected(
      "all-left",
      fmt::format("after {} every node has left: raise nodes.leave-after, let the nodes "
                  "of nodes.presence stay longer, or lower steps",
                  when));
}

std::unique_ptr<NetworkSimulation> make_simulation(const Experiment& experiment,
                                                   ComputePool& pool) {
  if (experiment.plan.traits.pattern == Pattern::kPairs) {
    return std::make_unique<AsynchronousSimulation>(experiment, pool);
  }
  return std::make_unique<SynchronousSimulation>(experiment, pool);
}

}  // namespace starling::gossip
