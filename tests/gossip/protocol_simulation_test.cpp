// SPDX-License-Identifier: Apache-2.0
// Whole peers in virtual time beside the recurrence that stands for them.
#include "gossip/simulation/protocol_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gossip/simulation_cases.h"

namespace starling::gossip {
namespace {

using testing::small_network;

SimulationResult run_with(const NetOptions& options, Protocol protocol, unsigned threads = 1) {
  const Experiment experiment = prepare(options).value();
  auto result = simulate(experiment, threads, SystemClock(), {}, protocol);
  EXPECT_TRUE(result) << result.error().message();
  return std::move(*result);
}

struct Network {
  const char* algorithm;
  const char* topology;
};

class ProtocolSimulations : public ::testing::TestWithParam<Network> {};

// Links are made first, and a message's last frame leaves when its receiver gave credit: some round
// trips more than the recurrence counts.
TEST_P(ProtocolSimulations, WithoutFaultsTheModelsAreTheRecurrences) {
  const auto options = small_network(GetParam().topology, 4, GetParam().algorithm);
  const auto peers = run_with(options, Protocol::kReal);
  const auto recurrence = run_with(options, Protocol::kRecurrence);
  EXPECT_EQ(peers.models, recurrence.models);
  ASSERT_EQ(peers.measurements.size(), recurrence.measurements.size());
  for (std::size_t i = 0; i < peers.measurements.size(); ++i) {
    EXPECT_EQ(peers.measurements[i].eval_loss, recurrence.measurements[i].eval_loss) << i;
  }
  const double extra = peers.totals.virtual_seconds - recurrence.totals.virtual_seconds;
  EXPECT_GE(extra, 0);
  EXPECT_LE(extra, 0.3);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ProtocolSimulations,
                         ::testing::Values(Network{"dpsgd", "ring"},
                                           Network{"gradient-tracking", "exponential"},
                                           Network{"choco", "ring"}, Network{"qg-dsgdm", "ring"},
                                           Network{"relaysgd", "path"},
                                           Network{"epidemic", "epidemic:s=2"}),
                         [](const auto& instance) {
                           std::string name = instance.param.algorithm;
                           std::erase(name, '-');
                           return name;
                         });

TEST(ProtocolSimulation, TheSameSeedGivesTheSameRunOnAnyNumberOfThreads) {
  auto options = small_network("exponential", 8, "sgp");
  options.network.splits = "10s-25s:2";
  options.nodes.step_time = std::chrono::milliseconds(500);
  options.nodes.crash_every = std::chrono::seconds(60);
  options.nodes.return_after = std::chrono::seconds(5);
  options.run.steps = 100;
  const auto one = run_with(options, Protocol::kReal, 1);
  const auto two = run_with(options, Protocol::kReal, 2);
  EXPECT_EQ(one.trace, two.trace);
  EXPECT_EQ(one.totals.virtual_seconds, two.totals.virtual_seconds);
  EXPECT_EQ(one.totals.traffic.bytes_sent, two.totals.traffic.bytes_sent);
}

TEST(ProtocolSimulation, AllReduceGoesOnWithoutWhoIsAway) {
  auto options = small_network("ring", 5, "all-reduce");
  options.nodes.crash_every = std::chrono::seconds(60);
  options.nodes.return_after = std::chrono::seconds(5);
  options.nodes.step_time = std::chrono::milliseconds(500);
  options.run.steps = 100;
  const auto result = run_with(options, Protocol::kReal);
  EXPECT_EQ(result.totals.step, 100U);
  EXPECT_GE(result.totals.virtual_seconds, 50);
  EXPECT_GT(*result.measurements.back().eval_accuracy, 0.8);
}

}  // namespace
}  // namespace starling::gossip
