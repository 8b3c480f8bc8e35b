// SPDX-License-Identifier: Apache-2.0
// Whole peers in virtual time beside the recurrence that stands for them.
#include "gossip/simulation/protocol_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/algorithms/dpsgd.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using testing::small_network;

SimulationResult run_with(const NetOptions& options, Simulated simulated, unsigned threads = 1) {
  const Experiment experiment = prepare(options, {}, simulated).value();
  auto result = simulate(experiment, threads, SystemClock(), {}, simulated);
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
  const auto peers = run_with(options, Simulated::kPeers);
  const auto recurrence = run_with(options, Simulated::kRecurrence);
  EXPECT_EQ(peers.models, recurrence.models);
  ASSERT_EQ(peers.measurements.size(), recurrence.measurements.size());
  for (std::size_t i = 0; i < peers.measurements.size(); ++i) {
    EXPECT_EQ(peers.measurements[i].eval_loss, recurrence.measurements[i].eval_loss) << i;
  }
  const double extra = peers.totals.virtual_seconds - recurrence.totals.virtual_seconds;
  EXPECT_GE(extra, 0);
  EXPECT_LE(extra, 0.3);
}

TEST_P(ProtocolSimulations, FromDifferentBeginningsToo) {
  auto options = small_network(GetParam().topology, 4, GetParam().algorithm);
  options.model.initial = "spread=1";
  const auto peers = run_with(options, Simulated::kPeers);
  const auto recurrence = run_with(options, Simulated::kRecurrence);
  EXPECT_EQ(peers.models, recurrence.models);
  EXPECT_GT(peers.measurements.front().consensus_distance, 0.5);
  EXPECT_EQ(peers.measurements.front().consensus_distance,
            recurrence.measurements.front().consensus_distance);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ProtocolSimulations,
                         ::testing::Values(Network{"dpsgd", "ring"},
                                           Network{"gradient-tracking", "exponential"},
                                           Network{"choco", "ring"}, Network{"d2", "complete"},
                                           Network{"detag", "ring"}, Network{"qg-dsgdm", "ring"},
                                           Network{"relaysgd", "path"},
                                           Network{"epidemic", "epidemic:s=2"}),
                         [](const auto& instance) {
                           std::string name = instance.param.algorithm;
                           std::erase(name, '-');
                           return name;
                         });

TEST(ProtocolSimulation, WithARobustRuleTheModelsAreTheRecurrences) {
  for (const char* algorithm : {"dpsgd", "epidemic", "qg-dsgdm", "diloco"}) {
    for (const char* rule : {"clip", "remove"}) {
      auto options = small_network("complete", 5, algorithm);
      options.robust.rule = rule;
      EXPECT_EQ(run_with(options, Simulated::kPeers).models,
                run_with(options, Simulated::kRecurrence).models)
          << algorithm << ' ' << rule;
    }
  }
}

TEST(ProtocolSimulation, AttacksAreOfTheRecurrence) {
  auto options = small_network("complete", 5);
  options.attack.kind = "alie";
  const Experiment experiment = prepare(options).value();
  const auto refused = simulate(experiment, 1, SystemClock(), {}, Simulated::kPeers);
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("attack.kind = none"));
}

TEST(ProtocolSimulation, TheSameSeedGivesTheSameRunOnAnyNumberOfThreads) {
  auto options = small_network("exponential", 8, "sgp");
  options.network.splits = "10s-25s:2";
  options.nodes.step_time = std::chrono::milliseconds(500);
  options.nodes.crash_every = std::chrono::seconds(60);
  options.nodes.return_after = std::chrono::seconds(5);
  options.run.steps = 100;
  const auto one = run_with(options, Simulated::kPeers, 1);
  const auto two = run_with(options, Simulated::kPeers, 2);
  EXPECT_EQ(one.trace, two.trace);
  EXPECT_EQ(one.totals.virtual_seconds, two.totals.virtual_seconds);
  EXPECT_EQ(one.totals.traffic.bytes_sent, two.totals.traffic.bytes_sent);
}

// What neighbours know of each other begins anew where the recurrence would have to do without it.
class SharedStateWithFaults : public ::testing::TestWithParam<const char*> {
 protected:
  // Of 400 steps in 40 s, each node with other classes.
  NetOptions network(const std::string& topology, Node nodes) const {
    auto options = small_network(topology, nodes, GetParam());
    options.data.dataset = "synthetic:rows=2400,features=12,classes=6";
    options.data.partition = "balanced-dirichlet:alpha=0.3";
    options.run.steps = 400;
    options.evaluate.every = 400;
    options.nodes.step_time = std::chrono::milliseconds(100);
    options.algorithm.ratio = 0.2;
    if (GetParam() == std::string("d2")) options.topology.mixing = "lazy";
    return options;
  }
  Measurement last(const NetOptions& options) {
    const auto result = run_with(options, Simulated::kPeers);
    EXPECT_EQ(result.totals.step, options.run.steps);
    return result.measurements.back();
  }
};

TEST_P(SharedStateWithFaults, AreForWholePeersOnly) {
  auto options = network("ring", 4);
  const std::vector<std::function<void(NetOptions&)>> faults = {
      [](NetOptions& of) { of.network.loss = 0.1; },
      [](NetOptions& of) { of.network.splits = "10s-20s:2"; },
      [](NetOptions& of) { of.nodes.crash_every = std::chrono::seconds(60); },
      [](NetOptions& of) { of.nodes.leave_after = std::chrono::seconds(60); }};
  data::ReadableDatasets datasets;
  for (const auto& fault : faults) {
    auto faulty = options;
    fault(faulty);
    const auto refused = prepare(faulty);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), "algorithm-network");
    EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("use --real-protocol"));
    EXPECT_FALSE(check(faulty, datasets));
    EXPECT_TRUE(prepare(faulty, {}, Simulated::kPeers));
    EXPECT_TRUE(check(faulty, datasets, Simulated::kPeers));
  }
}

// What is lost is sent again; a split loses messages.
TEST_P(SharedStateWithFaults, EndNearTheUndisturbedRun) {
  const auto options = network("ring", 8);
  const double undisturbed = *last(options).eval_accuracy;
  for (const double loss : {0.0, 0.2}) {
    for (const char* splits : {"10s-20s:2", "5s-12s:3;15s-25s:2"}) {
      auto faulty = options;
      faulty.network.loss = loss;
      faulty.network.splits = splits;
      EXPECT_GE(*last(faulty).eval_accuracy, undisturbed - 0.03) << loss << ' ' << splits;
    }
  }
}

// Two links, one of them one way, carry nothing for ten seconds.
TEST_P(SharedStateWithFaults, BearLinksThatAreHeld) {
  const starling::testing::TemporaryDirectory directory;
  auto options = network("torus:3x3", 9);
  const double undisturbed = *last(options).eval_accuracy;
  options.network.links = (directory.path() / "links.csv").string();
  std::ofstream(options.network.links)
      << "from,to,time,latency\n0,1,0s,1ms\n0,1,10s,10s\n0,1,20s,1ms\n1,0,0s,1ms\n"
         "4,5,0s,1ms\n4,5,15s,10s\n4,5,25s,1ms\n";
  const Measurement held = last(options);
  EXPECT_GE(*held.eval_accuracy, undisturbed - 0.03);
  EXPECT_LT(held.virtual_seconds, 80);
}

// Members that are started again, those that come late, and one that leaves for good: the others go
// on at their pace, and no model goes astray.
TEST_P(SharedStateWithFaults, GoOnWhereMembersComeAndGo) {
  const starling::testing::TemporaryDirectory directory;
  auto options = network("ring", 8);
  const Measurement undisturbed = last(options);
  options.nodes.presence = (directory.path() / "presence.csv").string();
  std::ofstream(options.nodes.presence) << "node,joins,leaves\n1,0s,5s\n1,8s,20s\n1,20.2s,\n"
                                           "2,6s,\n5,0s,12s\n5,16s,22s\n5,25s,\n7,0s,10s\n";
  const Measurement present = last(options);
  EXPECT_EQ(present.nodes_up, 7U);
  EXPECT_GE(*present.eval_accuracy_mean_model, *undisturbed.eval_accuracy_mean_model - 0.08);
  EXPECT_LT(present.virtual_seconds, 80);
}

TEST_P(SharedStateWithFaults, BearCrashAfterCrash) {
  auto options = network("ring", 8);
  options.run.steps = 800;
  options.evaluate.every = 800;
  const Measurement undisturbed = last(options);
  options.nodes.crash_every = std::chrono::seconds(60);
  options.nodes.return_after = std::chrono::seconds(5);
  for (const std::uint64_t seed : {2U, 3U}) {
    options.run.seed = seed;
    const Measurement crashed = last(options);
    EXPECT_GE(*crashed.eval_accuracy_mean_model, *undisturbed.eval_accuracy_mean_model - 0.08);
    EXPECT_LT(crashed.consensus_distance, 3) << seed;
    EXPECT_LT(crashed.virtual_seconds, 1.6 * 80) << seed;
  }
}

TEST_P(SharedStateWithFaults, AreTheSameOnAnyNumberOfThreads) {
  auto options = network("torus:3x3", 9);
  options.network.loss = 0.05;
  options.network.splits = "10s-20s:2";
  options.nodes.crash_every = std::chrono::seconds(40);
  options.nodes.return_after = std::chrono::seconds(3);
  const auto one = run_with(options, Simulated::kPeers, 1);
  for (const unsigned threads : {1U, 2U}) {
    const auto again = run_with(options, Simulated::kPeers, threads);
    EXPECT_EQ(again.trace, one.trace) << threads;
    EXPECT_EQ(again.models, one.models) << threads;
    EXPECT_EQ(again.totals.virtual_seconds, one.totals.virtual_seconds) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, SharedStateWithFaults,
                         ::testing::Values("choco", "gradient-tracking", "d2", "detag"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase(name, '-');
                           return name;
                         });

// Each half goes on by itself: a split costs its two links, not the time that it lasts.
TEST(ProtocolSimulation, ASplitKeepsNobodyFromItsOwnPart) {
  auto options = small_network("ring", 8);
  options.nodes.step_time = std::chrono::milliseconds(500);
  options.run.steps = 100;
  const double whole = run_with(options, Simulated::kPeers).totals.virtual_seconds;
  options.network.splits = "10s-40s:2";
  const double split = run_with(options, Simulated::kPeers).totals.virtual_seconds;
  EXPECT_GT(split, whole);
  EXPECT_LT(split, whole + 20);
}

TEST(ProtocolSimulation, WholePeersRunAnAlgorithmOfOnesOwn) {
  AlgorithmCatalogue own;
  OwnAlgorithm mine;
  mine.make = [](const Plan&, Node, std::span<const float> model) {
    return std::make_unique<Dpsgd<float>>(true, RobustOptions{}, model);
  };
  own.add("mine", mine);
  auto options = small_network("ring", 4, "mine");
  options.algorithm.own = &own;
  const auto peers = run_with(options, Simulated::kPeers);
  EXPECT_EQ(peers.models, run_with(small_network("ring", 4), Simulated::kRecurrence).models);
}

// A group whose links are made sooner leaves nobody of another one behind.
TEST(ProtocolSimulation, GroupsWaitAtFirstForLinksThatAreMadeLater) {
  for (const std::uint64_t seed : {2U, 5U, 7U, 8U}) {
    auto options = small_network("ring", 9, "all-reduce:group=3");
    options.network.latency = "uniform:20ms,100ms";
    options.run.seed = seed;
    EXPECT_EQ(run_with(options, Simulated::kPeers).models,
              run_with(options, Simulated::kRecurrence).models)
        << seed;
  }
}

// Sums are made in another order.
TEST(ProtocolSimulation, AllReduceMeansDifferentBeginnings) {
  auto options = small_network("ring", 5, "all-reduce");
  options.model.initial = "spread=1";
  const Measurement peers = run_with(options, Simulated::kPeers).measurements.back();
  const Measurement recurrence = run_with(options, Simulated::kRecurrence).measurements.back();
  EXPECT_EQ(peers.consensus_distance, 0);
  EXPECT_EQ(recurrence.consensus_distance, 0);
  EXPECT_NEAR(*peers.eval_loss, *recurrence.eval_loss, 1e-5);
}

// A model of 240 kB passes one slow link at its pace, piece by piece, as in the recurrence.
TEST(ProtocolSimulation, ASlowLinkCarriesOnePieceAfterTheOther) {
  const starling::testing::TemporaryDirectory directory;
  auto options = small_network("ring", 4);
  options.data.dataset = "synthetic:rows=60,features=20000,classes=3";
  options.network.links = (directory.path() / "links.csv").string();
  std::ofstream(options.network.links) << "from,to,bandwidth\n0,1,120kB/s\n";
  options.run.steps = 5;
  const auto peers = run_with(options, Simulated::kPeers);
  const auto recurrence = run_with(options, Simulated::kRecurrence);
  EXPECT_EQ(peers.models, recurrence.models);
  EXPECT_GE(recurrence.totals.virtual_seconds, 5 * 2);
  EXPECT_NEAR(peers.totals.virtual_seconds, recurrence.totals.virtual_seconds, 0.5);
}

// Along a tree: an attempt that is given up while pieces are on their way costs seconds.
TEST(ProtocolSimulation, AnAllReduceOverSlowLinksTakesTheTimeOfTheRecurrence) {
  auto options = small_network("ring", 16, "all-reduce");
  options.data.dataset = "synthetic:rows=60,features=2300,classes=3";
  options.network.latency = "100ms";
  options.network.bandwidth = "1Mbit/s";
  options.run.steps = 3;
  const auto peers = run_with(options, Simulated::kPeers);
  const auto recurrence = run_with(options, Simulated::kRecurrence);
  EXPECT_GE(recurrence.totals.virtual_seconds, 8);
  const double extra = peers.totals.virtual_seconds - recurrence.totals.virtual_seconds;
  EXPECT_GE(extra, 0);
  EXPECT_LE(extra, 1.5);  // links, and small messages
}

// A link that becomes slow costs whole peers the time that it costs the recurrence, and a node that
// leaves and comes back is missed in between.
TEST(ProtocolSimulation, TracesOfLinksAndPresenceAreFollowed) {
  const starling::testing::TemporaryDirectory directory;
  auto options = small_network("ring", 4);
  options.nodes.step_time = std::chrono::milliseconds(100);
  options.network.links = (directory.path() / "links.csv").string();
  std::ofstream(options.network.links) << "from,to,time,latency\n0,1,0s,1ms\n0,1,1s,500ms\n";
  const auto peers = run_with(options, Simulated::kPeers);
  const auto recurrence = run_with(options, Simulated::kRecurrence);
  EXPECT_EQ(peers.models, recurrence.models);
  EXPECT_GE(recurrence.totals.virtual_seconds, 1 + 10 * 0.5);
  EXPECT_NEAR(peers.totals.virtual_seconds, recurrence.totals.virtual_seconds, 1);
  options.network.links = "";
  options.run.steps = 100;
  options.nodes.presence = (directory.path() / "presence.csv").string();
  std::ofstream(options.nodes.presence) << "node,joins,leaves\n2,0s,3s\n2,6s,\n";
  for (const auto simulated : {Simulated::kPeers, Simulated::kRecurrence}) {
    const auto result = run_with(options, simulated);
    EXPECT_TRUE(std::ranges::any_of(result.measurements, [](const Measurement& measurement) {
      return measurement.step > 0 && measurement.nodes_up == 3;
    }));
    EXPECT_EQ(result.measurements.back().nodes_up, 4U);
  }
}

// For a minute from its third second on, as whole peers meet it on devices.
TEST(ProtocolSimulation, ALinkThatIsHeldIsWaitedForOnce) {
  const starling::testing::TemporaryDirectory directory;
  for (const char* const algorithm : {"dpsgd", "all-reduce", "all-reduce:group=2"}) {
    SCOPED_TRACE(algorithm);
    auto options = small_network("ring", 6, algorithm);
    options.run.steps = 200;
    options.nodes.step_time = std::chrono::milliseconds(100);
    options.network.links = (directory.path() / "links.csv").string();
    std::ofstream(options.network.links) << "from,to,time,latency\n0,1,0s,1ms\n0,1,3s,60s\n"
                                            "0,1,63s,1ms\n1,0,0s,1ms\n";
    EXPECT_LT(run_with(options, Simulated::kPeers).totals.virtual_seconds, 1.5 * 20);
  }
}

// A local phase ends past an evaluation where H does not divide their distance: both worlds measure
// the model after it, once, under its own step.
TEST(ProtocolSimulation, EvaluationsAreOfTheStepThatTheyName) {
  struct Case {
    const char* algorithm;
    int local_steps;
    std::uint64_t every;
  };
  for (const auto& [algorithm, local_steps, every] :
       {Case{"diloco", 10, 4}, Case{"dpsgd", 4, 10}, Case{"all-reduce", 3, 7}}) {
    auto options = small_network("ring", 4, algorithm);
    options.run.steps = 42;
    options.train.train.local_steps = local_steps;
    options.evaluate.every = every;
    const auto peers = run_with(options, Simulated::kPeers).measurements;
    const auto recurrence = run_with(options, Simulated::kRecurrence).measurements;
    ASSERT_EQ(peers.size(), recurrence.size()) << algorithm;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      EXPECT_EQ(peers[i].step, recurrence[i].step) << algorithm << ' ' << i;
      EXPECT_NEAR(*peers[i].eval_loss, *recurrence[i].eval_loss, 1e-5) << algorithm << ' ' << i;
      EXPECT_EQ(peers[i].nodes_up, recurrence[i].nodes_up) << algorithm << ' ' << i;
    }
  }
}

// What is pushed to a member that is gone would not come back: the others would be left without
// mass, and without mixing.
TEST(ProtocolSimulation, OthersMixOnWithoutAMemberThatLeftForGood) {
  const starling::testing::TemporaryDirectory directory;
  for (const char* algorithm : {"sgp", "push-sum"}) {
    auto options = small_network("exponential", 8, algorithm);
    options.nodes.step_time = std::chrono::milliseconds(10);
    options.run.steps = 400;
    options.nodes.presence = (directory.path() / "presence.csv").string();
    std::ofstream(options.nodes.presence) << "node,joins,leaves\n3,0s,1s\n";
    for (const auto simulated : {Simulated::kPeers, Simulated::kRecurrence}) {
      const auto result = run_with(options, simulated);
      EXPECT_EQ(result.measurements.back().nodes_up, 7U);
      EXPECT_LT(result.measurements.back().consensus_distance, 0.1)
          << algorithm << (simulated == Simulated::kPeers ? ", peers" : ", recurrence");
    }
  }
}

// Peers are behind the recurrence by what it takes to make links, so they are given a second more.
TEST(ProtocolSimulation, ARunThatEndsByVirtualTimeEndsWithThePresentModels) {
  auto options = small_network("ring", 4);
  options.nodes.step_time = std::chrono::seconds(1);
  options.run.virtual_time = std::chrono::milliseconds(12'500);
  const auto recurrence = run_with(options, Simulated::kRecurrence);
  options.run.virtual_time = std::chrono::milliseconds(13'800);
  const auto peers = run_with(options, Simulated::kPeers);
  EXPECT_EQ(recurrence.totals.step, 13U);
  EXPECT_EQ(peers.totals.step, 13U);
  EXPECT_EQ(peers.models, recurrence.models);
  EXPECT_EQ(peers.measurements.size(), recurrence.measurements.size());
  EXPECT_GE(peers.totals.virtual_seconds, 13.8);
}

TEST(ProtocolSimulation, AllNodesMayBeAwayForLong) {
  const starling::testing::TemporaryDirectory directory;
  auto options = small_network("ring", 4);
  options.nodes.step_time = std::chrono::milliseconds(200);
  options.nodes.presence = (directory.path() / "presence.csv").string();
  std::ofstream presence(options.nodes.presence);
  presence << "node,joins,leaves\n";
  for (int node = 0; node < 4; ++node) {
    presence << node << ",0s,2s\n" << node << ",6000s,\n";
  }
  presence.close();
  const auto peers = run_with(options, Simulated::kPeers);
  EXPECT_EQ(peers.totals.step, 20U);
  EXPECT_GE(peers.totals.virtual_seconds, 6000);
  EXPECT_EQ(peers.measurements.back().nodes_up, 4U);
}

TEST(ProtocolSimulation, ARunWithoutProgressSaysWhatStandsInItsWay) {
  auto options = small_network("ring", 3);
  options.nodes.step_time = std::chrono::seconds(300);
  options.nodes.crash_every = std::chrono::seconds(20);
  options.nodes.return_after = std::chrono::seconds(20);
  const Experiment experiment = prepare(options).value();
  const auto failed = simulate(experiment, 1, SystemClock(), {}, Simulated::kPeers);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), "no-progress");
  EXPECT_THAT(failed.error().message(), ::testing::HasSubstr("beyond step 0 for"));
  EXPECT_THAT(failed.error().message(), ::testing::HasSubstr("nodes.crash-every"));
}

TEST(ProtocolSimulation, AllReduceGoesOnWithoutWhoIsAway) {
  auto options = small_network("ring", 5, "all-reduce");
  options.nodes.crash_every = std::chrono::seconds(60);
  options.nodes.return_after = std::chrono::seconds(5);
  options.nodes.step_time = std::chrono::milliseconds(500);
  options.run.steps = 100;
  const auto result = run_with(options, Simulated::kPeers);
  EXPECT_EQ(result.totals.step, 100U);
  EXPECT_GE(result.totals.virtual_seconds, 50);
  EXPECT_GT(*result.measurements.back().eval_accuracy, 0.8);
}

}  // namespace
}  // namespace starling::gossip
