// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/asynchronous_simulation.h"
#include "gossip/simulation/synchronous_simulation.h"

namespace starling::gossip {

std::unique_ptr<NetworkSimulation> make_simulation(const Experiment& experiment,
                                                   ComputePool& pool) {
  if (experiment.plan.traits.pattern == Pattern::kPairs) {
    return std::make_unique<AsynchronousSimulation>(experiment, pool);
  }
  return std::make_unique<SynchronousSimulation>(experiment, pool);
}

}  // namespace starling::gossip
