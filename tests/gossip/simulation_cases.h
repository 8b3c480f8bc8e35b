// SPDX-License-Identifier: Apache-2.0
// Small networks on synthetic data, for tests of the simulation.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gossip/simulation/simulation.h"

namespace starling::gossip::testing {

// n nodes, softmax regression on Gaussian clusters, a few steps.
inline NetOptions small_network(const std::string& topology, std::uint32_t nodes,
                                const std::string& algorithm = "dpsgd") {
  NetOptions options;
  options.topology.spec = topology;
  options.topology.nodes = nodes;
  options.algorithm.name = algorithm;
  options.data.dataset = "synthetic:rows=600,features=12,classes=3";
  options.run.steps = 20;
  options.evaluate.every = 5;
  options.train.train.batch_size = 8;
  return options;
}

// The same over so many steps, measured at its end only.
inline NetOptions small_network_of_steps(std::uint64_t steps, const std::string& topology,
                                         std::uint32_t nodes,
                                         const std::string& algorithm = "dpsgd") {
  NetOptions options = small_network(topology, nodes, algorithm);
  options.run.steps = steps;
  options.evaluate.every = steps;
  return options;
}

// Requires: options that can run.
inline Experiment prepared(const NetOptions& options) {
  auto experiment = prepare(options);
  EXPECT_TRUE(experiment) << experiment.error().message();
  return std::move(*experiment);
}

inline Result<SimulationResult> run(const NetOptions& options, unsigned threads = 1) {
  STARLING_ASSIGN(const Experiment experiment, prepare(options));
  const SystemClock clock;
  return simulate(experiment, threads, clock, {});
}

inline SimulationResult run_well(const NetOptions& options, unsigned threads = 1) {
  auto result = run(options, threads);
  EXPECT_TRUE(result) << result.error().message();
  return std::move(*result);
}

}  // namespace starling::gossip::testing
