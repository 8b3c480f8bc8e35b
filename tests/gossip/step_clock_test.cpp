// SPDX-License-Identifier: Apache-2.0
// Virtual time of synchronous steps against times worked out by hand.
#include "gossip/simulation/step_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <utility>

#include "gossip/training/patience.h"
#include "tests/support/temporary_directory.h"
#include "topologies/topology.h"

namespace starling::gossip {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kShareTolerance = 1e-9;

struct World {
  sim::Network network;
  sim::Population population;
  std::unique_ptr<const topologies::Topology> topology;
  ComputePool pool{2};
  std::vector<std::uint64_t> bytes;

  World(const sim::NetworkOptions& network_options, const sim::NodeOptions& node_options,
        const std::string& spec, Node nodes, std::uint64_t message)
      : network(*sim::Network::make(network_options, nodes, 1)),
        population(*sim::Population::make(node_options, nodes, 1)),
        topology(*topologies::Topology::make({.spec = spec, .nodes = nodes})),
        bytes(nodes, message) {}

  bool step(StepClock& clock, std::uint64_t number, StepClock::Sending sending = {}) {
    if (!clock.begin(number, 1)) return false;
    sending.exchange = number;
    clock.exchange(*topology->at(number), bytes, sending, pool);
    return true;
  }
};

// Both neighbours' messages leave one after the other; the second is through after two transfers
// and a latency.
TEST(StepClock, ARingWaitsForTwoTransfersAndALatency) {
  World world({.latency = "20ms", .bandwidth = "1MB/s"}, {.step_time = milliseconds(10)}, "ring", 6,
              100'000);
  StepClock clock(world.network, world.population, 6, false);
  for (std::uint64_t step = 0; step < 4; ++step) ASSERT_TRUE(world.step(clock, step));
  EXPECT_NEAR(clock.now(), 4 * (0.01 + 2 * 0.1 + 0.02), kShareTolerance);
  EXPECT_EQ(clock.traffic().messages, 4U * 12);
  EXPECT_EQ(clock.traffic().bytes_sent, 4U * 12 * 100'000);
}

// Two neighbours send at once, and neither sends again before the other's message has come: so the
// link from 0 to 1 has the second message while the first still passes it.
TEST(StepClock, ASlowLinkSetsThePace) {
  const starling::testing::TemporaryDirectory directory;
  const std::string links = (directory.path() / "links.csv").string();
  std::ofstream(links) << "from,to,bandwidth\n0,1,100kB/s\n1,0,1GB/s\n";
  World world({.latency = "0s", .bandwidth = "1GB/s", .links = links},
              {.step_time = Duration::zero()}, "path", 2, 100'000);
  StepClock clock(world.network, world.population, 2, false);
  for (std::uint64_t step = 0; step < 10; ++step) ASSERT_TRUE(world.step(clock, step));
  EXPECT_NEAR(clock.now(), 10, 0.01);
}

// The hub's link takes in all leaves' messages, one after the other, and sends as many.
TEST(StepClock, AStarsHubIsItsBottleneck) {
  constexpr Node kNodes = 9;
  World world({.latency = "0s", .bandwidth = "1MB/s"}, {.step_time = Duration::zero()}, "star",
              kNodes, 100'000);
  StepClock clock(world.network, world.population, kNodes, false);
  ASSERT_TRUE(world.step(clock, 0));
  EXPECT_NEAR(clock.now(), 8 * 0.1, kShareTolerance);
}

// The slower of the two links decides, at any time of the run and in both directions.
TEST(StepClock, AMessagePassesAtThePaceOfTheSlowerLink) {
  World world({.latency = "20ms", .bandwidth = "uniform:100kB/s,2MB/s"},
              {.step_time = milliseconds(10)}, "path", 2, 100'000);
  ASSERT_NE(world.network.bandwidth(0), world.network.bandwidth(1));
  const double slower = std::max(world.network.transfer_seconds(0, 100'000),
                                 world.network.transfer_seconds(1, 100'000));
  StepClock clock(world.network, world.population, 2, false);
  for (std::uint64_t step = 0; step < 5; ++step) {
    ASSERT_TRUE(world.step(clock, step));
    const double expected = static_cast<double>(step + 1) * (0.01 + slower + 0.02);
    EXPECT_NEAR(clock.ready(0), expected, kShareTolerance);
    EXPECT_NEAR(clock.ready(1), expected, kShareTolerance);
  }
}

TEST(StepClock, WhatLeavesBeforeTrainingOverlapsIt) {
  World world({.latency = "20ms", .bandwidth = "1MB/s"}, {.step_time = milliseconds(500)}, "ring",
              4, 100'000);
  StepClock clock(world.network, world.population, 4, false);
  for (std::uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(world.step(clock, step, {.before_training = true}));
  }
  EXPECT_NEAR(clock.now(), 3 * 0.5, kShareTolerance);
}

// ready_i(t+1) = max over i and its neighbours of (ready_j(t) + work_j) + transfers + latency: a
// straggler's lateness spreads one hop a step.
TEST(StepClock, LatenessSpreadsOneHopAStep) {
  constexpr Node kNodes = 12;
  World world({.latency = "5ms", .bandwidth = "1GB/s"},
              {.step_time = milliseconds(10), .step_jitter = "uniform:0.5,3"}, "ring", kNodes, 0);
  StepClock clock(world.network, world.population, kNodes, false);
  std::vector<double> ready(kNodes);
  for (std::uint64_t step = 0; step < 20; ++step) {
    ASSERT_TRUE(world.step(clock, step));
    std::vector<double> done(kNodes);
    for (Node i = 0; i < kNodes; ++i) done[i] = ready[i] + world.population.step_seconds(i, step);
    for (Node i = 0; i < kNodes; ++i) {
      const double left = done[(i + kNodes - 1) % kNodes] + 0.005;
      const double right = done[(i + 1) % kNodes] + 0.005;
      ready[i] = std::max({done[i], left, right});
      ASSERT_NEAR(clock.ready(i), ready[i], kShareTolerance);
    }
  }
}

// What is not lost is mixed, whatever is lost around it, and a loss costs a round trip.
TEST(StepClock, AsManyMessagesComeAsAreNotLost) {
  constexpr Node kNodes = 32;
  constexpr std::uint64_t kSteps = 1000;
  const auto run = [](double loss) {
    World world({.latency = "1ms", .loss = loss}, {.step_time = milliseconds(10)}, "exponential",
                kNodes, 31'400);
    StepClock clock(world.network, world.population, kNodes, loss > 0);
    for (std::uint64_t step = 0; step < kSteps; ++step) EXPECT_TRUE(world.step(clock, step));
    EXPECT_EQ(clock.traffic().messages, kSteps * kNodes * 5);
    EXPECT_EQ(clock.traffic().arrived + clock.traffic().lost, clock.traffic().messages);
    EXPECT_EQ(clock.traffic().late, 0U);
    return std::pair(static_cast<double>(clock.traffic().arrived) /
                         static_cast<double>(clock.traffic().messages),
                     clock.now());
  };
  const auto [all, calm] = run(0);
  EXPECT_EQ(all, 1);
  for (const double loss : {0.001, 0.01, 0.1, 0.2}) {
    const auto [arrived, took] = run(loss);
    EXPECT_NEAR(arrived, 1 - loss, 0.01 * (1 - loss)) << loss;
    EXPECT_LE(took, calm + kSteps * 0.002) << loss;
  }
}

// The first message of node 0 is lost: its neighbours know a round trip after it was due.
TEST(StepClock, ALossCostsARoundTrip) {
  World world({.latency = "20ms", .bandwidth = "1MB/s", .loss = 0.999},
              {.step_time = milliseconds(10)}, "path", 2, 100'000);
  StepClock clock(world.network, world.population, 2, true);
  ASSERT_TRUE(world.step(clock, 0));
  ASSERT_EQ(clock.traffic().lost, 2U);
  EXPECT_NEAR(clock.now(), 0.01 + 0.1 + 0.02 + 0.04, kShareTolerance);
}

// A message takes two seconds, and nobody waits longer than one: each is mixed an exchange or two
// later.
TEST(StepClock, WhatComesAfterTheDeadlineIsMixedLater) {
  World world({.latency = "2s", .loss = 0.01, .deadline = seconds(1)},
              {.step_time = milliseconds(10)}, "ring", 16, 1000);
  StepClock clock(world.network, world.population, 16, true);
  constexpr std::uint64_t kSteps = 200;
  std::uint64_t mixed = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(world.step(clock, step));
    for (std::uint64_t entry = 0; entry < 32; ++entry) {
      if (clock.heard(entry) == StepClock::kNothing) continue;
      ++mixed;
      EXPECT_GE(clock.heard(entry) + StepClock::kLateMax, step);
      EXPECT_LT(clock.heard(entry), step);
    }
  }
  EXPECT_NEAR(clock.now(), kSteps * (0.01 + 1), kShareTolerance * kSteps);
  const Traffic& traffic = clock.traffic();
  EXPECT_EQ(traffic.late, traffic.arrived);
  EXPECT_EQ(mixed, traffic.arrived);
  // All but the last few are there, and each as old as the others.
  EXPECT_NEAR(static_cast<double>(traffic.arrived), 0.99 * 32 * (kSteps - 1), 0.01 * 32 * kSteps);
  EXPECT_EQ(traffic.staleness, traffic.arrived);
}

// Eight messages a step, and a link that is through with one in 0.1 seconds: however late they are
// mixed, no more come through.
TEST(StepClock, LateMessagesTakeTheirTimeOnTheLinkToo) {
  constexpr Node kNodes = 9;
  World world({.latency = "1ms", .bandwidth = "1MB/s", .loss = 1e-9, .deadline = milliseconds(1)},
              {.step_time = milliseconds(100)}, "star", kNodes, 100'000);
  StepClock clock(world.network, world.population, kNodes, true);
  const auto senders = world.topology->at(0)->senders(0);
  ASSERT_EQ(senders.size(), 8U) << "the hub";
  double busy = 0;
  for (std::uint64_t step = 0; step < 50; ++step) {
    ASSERT_TRUE(world.step(clock, step));
    for (std::uint64_t entry = 0; entry < senders.size(); ++entry) {
      busy += clock.heard(entry) != StepClock::kNothing ? 0.1 : 0;
    }
    EXPECT_LE(busy, clock.ready(0) + kShareTolerance) << step;
  }
  EXPECT_GT(busy, 0.9 * clock.ready(0));
}

// One node needs 100 times as long as its neighbours may wait: they do not run away from it.
TEST(StepClock, NobodyRunsAwayFromASlowNode) {
  constexpr Node kNodes = 8;
  World world({.latency = "1ms", .loss = 0.001, .deadline = milliseconds(50)},
              {.step_time = milliseconds(50), .stragglers = 1.0 / kNodes, .slowdown = 100}, "ring",
              kNodes, 1000);
  StepClock clock(world.network, world.population, kNodes, true);
  Node slow = 0;
  for (Node node = 0; node < kNodes; ++node) {
    if (world.population.step_seconds(node, 0) > 1) slow = node;
  }
  const Node next = (slow + 1) % kNodes;
  constexpr std::uint64_t kSteps = 200;
  std::uint64_t fresh = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(world.step(clock, step));
    // The straggler is at most so many of its own steps behind.
    EXPECT_LE(clock.ready(slow) - clock.ready(next),
              5.001 * static_cast<double>(StepClock::kLateMax + 1));
    std::uint64_t entry = 0;
    const auto matrix = world.topology->at(step);
    for (Node node = 0; node < kNodes; ++node) {
      for (const topologies::Weight& sender : matrix->senders(node)) {
        if (node == next && sender.node == slow) {
          fresh += clock.heard(entry) != StepClock::kNothing ? 1 : 0;
        }
        ++entry;
      }
    }
  }
  EXPECT_GT(fresh, kSteps * 9 / 10);
  EXPECT_GT(clock.traffic().late, kSteps);
}

TEST(StepClock, RetransmissionsCostBytesAndTimeOnTheLink) {
  World world({.latency = "1ms",
               .bandwidth = "1MB/s",
               .loss = 0.2,
               .retransmit = true,
               .retransmit_after = Duration::zero()},
              {.step_time = milliseconds(10)}, "ring", 16, 60'000);
  StepClock clock(world.network, world.population, 16, false);
  constexpr std::uint64_t kSteps = 500;
  for (std::uint64_t step = 0; step < kSteps; ++step) ASSERT_TRUE(world.step(clock, step));
  EXPECT_EQ(clock.traffic().lost, 0U);
  EXPECT_EQ(clock.traffic().arrived, kSteps * 32);
  const double sent = static_cast<double>(clock.traffic().bytes_sent);
  EXPECT_NEAR(sent / (kSteps * 32 * 60'000), 1.25, 0.02);
  EXPECT_GT(clock.now(), sent / 16 / 1e6);
}

// Both sides go on, and whoever is cut off is waited for once.
TEST(StepClock, ASplitCostsARoundTripOnce) {
  World world({.latency = "20ms", .splits = "1s-3s:4000000000"}, {.step_time = milliseconds(10)},
              "ring", 8, 0);
  StepClock clock(world.network, world.population, 8, true);
  std::uint64_t step = 0;
  while (clock.traffic().lost == 0) ASSERT_TRUE(world.step(clock, step++));
  const double noticed = clock.now();
  EXPECT_LE(noticed, 1.04 + 0.01 + 0.02);
  for (int k = 0; k < 50; ++k) ASSERT_TRUE(world.step(clock, step++));
  EXPECT_NEAR(clock.now(), noticed + 50 * 0.01, kShareTolerance);
}

TEST(StepClock, TimePassesWhereNobodyFinishesAStep) {
  World world({}, {.step_time = seconds(100), .crash_every = milliseconds(100)}, "ring", 4, 10);
  StepClock clock(world.network, world.population, 4, true);
  double before = -1;
  for (std::uint64_t attempt = 0; attempt < 50; ++attempt) {
    ASSERT_TRUE(clock.begin(0, 1));
    ASSERT_EQ(clock.present_count(), 0U);
    ASSERT_GT(clock.now(), before);
    before = clock.now();
  }
}

TEST(Patience, LearnsFromWaitsAndGrowsWhereNothingComes) {
  Patience patience;
  EXPECT_EQ(patience.seconds(0.01, 10), 0.1);
  EXPECT_EQ(patience.seconds(0, 10), 10);  // nothing to go by
  patience.give_up();
  patience.give_up();
  EXPECT_EQ(patience.seconds(0.01, 10), 0.4);
  EXPECT_EQ(patience.seconds(0.01, 0.3), 0.3);
  for (int k = 0; k < 200; ++k) patience.learn(0.2);
  EXPECT_NEAR(patience.seconds(0.01, 10), 0.25, kShareTolerance);
  EXPECT_NEAR(patience.seconds(1, 10), 1.2, kShareTolerance);
}

TEST(StepClock, WhoCrashesIsMissedOnceAndComesBack) {
  World world({.latency = "1ms"},
              {.step_time = milliseconds(10),
               .crash_every = milliseconds(200),
               .return_after = milliseconds(100)},
              "complete", 8, 1000);
  StepClock clock(world.network, world.population, 8, true);
  std::uint64_t present = 0;
  std::uint64_t returns = 0;
  for (std::uint64_t step = 0; step < 400; ++step) {
    ASSERT_TRUE(world.step(clock, step));
    present += clock.present_count();
    for (Node node = 0; node < 8; ++node) {
      if (!clock.returns(node)) continue;
      ++returns;
      EXPECT_TRUE(clock.present(node));
    }
  }
  // There two thirds of the time, and most steps are done by most.
  EXPECT_GT(present, 400U * 3);
  EXPECT_LT(present, 400U * 7);
  EXPECT_GT(returns, 20U);
  EXPECT_LT(clock.now(), 400 * 0.2);
}

TEST(StepClock, EndsWhereEverybodyHasLeft) {
  World world({.latency = "1ms"}, {.step_time = milliseconds(10), .leave_after = milliseconds(100)},
              "complete", 4, 10);
  StepClock clock(world.network, world.population, 4, true);
  std::uint64_t steps = 0;
  while (world.step(clock, steps)) ASSERT_LT(++steps, 1000U);
  EXPECT_GT(steps, 2U);
}

}  // namespace
}  // namespace starling::gossip
