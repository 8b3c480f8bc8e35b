// SPDX-License-Identifier: Apache-2.0
// Whole peers over TLS on one machine: the simulation's bits without faults, and what they do when
// members stop, come back, are revoked, or hold a roster that expired.
#include "gossip/peer/peer_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerCluster;
using starling::testing::simulated_models;

struct Case {
  std::string algorithm;
  std::string topology;
  std::uint32_t nodes = 4;
  int local_steps = 1;
  std::string mixing = "own";
};

class SameBits : public ::testing::TestWithParam<Case> {};

TEST_P(SameBits, AsTheSimulation) {
  const Case& c = GetParam();
  NetOptions options = testing::small_network(c.topology, c.nodes, c.algorithm);
  options.train.train.local_steps = c.local_steps;
  options.topology.mixing = c.mixing;
  PeerCluster cluster(options);
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until_finished();
  const auto expected = simulated_models(cluster.experiment);
  for (std::size_t i = 0; i < cluster.peers.size(); ++i) {
    EXPECT_EQ(cluster.model(i), expected[i]) << cluster.peers[i]->name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    PeerNode, SameBits,
    ::testing::Values(Case{"dpsgd", "ring"}, Case{"dpsgd", "exponential", 6, 3},
                      Case{"dpsgd", "one-peer-exponential", 4}, Case{"sgp", "exponential", 5},
                      Case{"gradient-tracking", "ring", 4}, Case{"choco", "ring", 4},
                      Case{"d2", "complete", 3, 1, "lazy"}, Case{"epidemic", "epidemic:s=2", 5},
                      Case{"qg-dsgdm", "ring", 4}, Case{"relaysgd", "path", 4},
                      Case{"diloco", "ring", 4, 5}, Case{"detag", "ring", 4}),
    [](const auto& instance) {
      std::string name = instance.param.algorithm + "_" + instance.param.topology;
      for (char& c : name) {
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      }
      return name;
    });

TEST(PeerNode, MeansOverAllAreThoseOfTheSimulation) {
  for (const std::string algorithm : {"all-reduce", "diloco-all"}) {
    for (const std::uint32_t nodes : {1U, 3U, 5U}) {
      NetOptions options = testing::small_network("ring", nodes, algorithm);
      options.train.train.local_steps = 4;
      PeerCluster cluster(options);
      cluster.start_all();
      cluster.publish(cluster.roster(1));
      cluster.run_until_finished();
      const auto expected = simulated_models(cluster.experiment);
      for (std::size_t i = 0; i < nodes; ++i) {
        EXPECT_EQ(cluster.model(i), cluster.model(0));
        // The simulation sums in another order.
        for (std::size_t k = 0; k < expected[i].size(); ++k) {
          EXPECT_NEAR(cluster.model(i)[k], expected[i][k], 1e-5) << algorithm << " " << nodes;
        }
      }
    }
  }
}

// Nothing is sent twice where no link is lost, though links come up after the first training (on a
// busy machine two may dial each other at once: the link that gives way counts as lost); and what
// is reported with a model is what is said of it.
TEST(PeerNode, EachMessageIsSentOnceAndReportedBeforeItsModel) {
  const NetOptions options = testing::small_network("ring", 4);
  PeerCluster cluster(options);
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until_finished();
  EXPECT_EQ(cluster.log.count("no neighbour was ever heard"), 0U);
  const std::size_t resent = 3 * cluster.log.count("lost node-");  // at most, over each new link
  for (const auto& peer : cluster.peers) {
    EXPECT_GE(peer->last->messages, 2 * options.run.steps);
    EXPECT_LE(peer->last->messages, 2 * options.run.steps + resent) << cluster.log.all();
    ASSERT_FALSE(peer->step_known.empty());
    for (std::size_t i = 0; i < peer->models.size(); ++i) {
      EXPECT_EQ(peer->step_known[i], peer->models[i].first.step);
    }
  }
}

std::uint64_t step_of(const PeerCluster& cluster, std::size_t index) {
  return cluster.peers[index]->node->peer().report().step;
}

TEST(PeerNode, MeansGoOnAmongTheSurvivorsAndTakeBackWhoReturns) {
  NetOptions options = testing::small_network_of_steps(100'000, "ring", 4);
  options.algorithm.name = "all-reduce";
  PeerCluster cluster(options, true);
  cluster.shorten_timeouts();
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return step_of(cluster, 1) >= 50; }, "50 steps");
  cluster.stop(0);  // the lowest gathers
  const std::uint64_t step = step_of(cluster, 1);
  cluster.run_until(
      [&] {
        const auto report = cluster.peers[1]->node->peer().report();
        return report.step > step + 50 && report.neighbours == 2;
      },
      "three go on");
  cluster.start(0);
  cluster.run_until(
      [&] {
        for (std::size_t i = 0; i < 4; ++i) {
          if (cluster.peers[i]->node->peer().report().neighbours != 3) return false;
        }
        return true;
      },
      "all four average again");
}

TEST(PeerNode, MassThatIsCountedOnEdgesIsAgreedOnAtOnce) {
  NetOptions options = testing::small_network_of_steps(200, "ring", 4);
  options.algorithm.name = "sgp";
  options.topology.mixing = "push";
  PeerCluster cluster(options, true);
  cluster.shorten_timeouts();
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until_finished();
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(cluster.peers[i]->node->peer().report().neighbours, 2U);
}

TEST(PeerNode, WhoStopsIsNotWaitedForAndComesBackFromItsCheckpoint) {
  PeerCluster cluster(testing::small_network_of_steps(20'000, "ring", 4), true);
  cluster.shorten_timeouts();
  cluster.start_all();
  const auto roster = cluster.roster(1);
  cluster.publish(roster);
  cluster.run_until([&] { return step_of(cluster, 1) >= 50; }, "the second has done 50 steps");
  cluster.stop(1);
  const std::uint64_t stopped_at = step_of(cluster, 0);
  cluster.run_until(
      [&] {
        const auto report = cluster.peers[0]->node->peer().report();
        return report.step > stopped_at + 50 && report.neighbours == 1;
      },
      "the first goes on with one neighbour");
  cluster.start(1);
  EXPECT_GE(step_of(cluster, 1), 50U);
  cluster.run_until(
      [&] {
        for (std::size_t i = 0; i < 4; ++i) {
          if (cluster.peers[i]->node->peer().report().neighbours != 2) return false;
        }
        return true;
      },
      "all hear both neighbours again");
}

TEST(PeerNode, WhoComesLateTakesTheModelOfTheOthers) {
  PeerCluster cluster(testing::small_network_of_steps(20'000, "ring", 4), true);
  cluster.shorten_timeouts();
  cluster.options.start_patience = std::chrono::milliseconds(300);
  cluster.start_all();
  const auto roster = cluster.roster(1);
  cluster.stop(3);
  std::filesystem::remove_all(cluster.peers[3]->directory / "gossip");
  cluster.publish(roster);
  cluster.run_until([&] { return step_of(cluster, 0) >= 200; }, "the first has done 200 steps");
  cluster.start(3);
  cluster.peers[3]->node->peer().take_roster(roster, PeerShell::Source::kIssuer);
  cluster.run_until(
      [&] {
        const auto report = cluster.peers[3]->node->peer().report();
        return report.step >= 200 && report.neighbours == 2;
      },
      "the late one trains with both neighbours where they are");
}

TEST(PeerNode, WhoIsNoMemberAnyMoreIsCutOffAndTheRosterSpreads) {
  PeerCluster cluster(testing::small_network_of_steps(20'000, "ring", 4), true);
  cluster.shorten_timeouts();
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return step_of(cluster, 3) >= 20; }, "20 steps");
  // One hears of it; the others hear of it from one another.
  cluster.peers[0]->node->peer().take_roster(cluster.roster(2, {0, 1, 2}),
                                             PeerShell::Source::kIssuer);
  cluster.run_until(
      [&] {
        for (std::size_t i = 0; i < 3; ++i) {
          const auto report = cluster.peers[i]->node->peer().report();
          if (report.epoch != 2 || report.neighbours != 2) return false;
        }
        return true;
      },
      "three train on in the new epoch");
  cluster.run_until([&] { return cluster.peers[3]->node->peer().report().neighbours == 0; },
                    "the fourth is heard by nobody");
  const std::uint64_t step = step_of(cluster, 0);
  cluster.run_until([&] { return step_of(cluster, 0) > step + 50; }, "the others go on");
}

// A second run begins at its beginning, though its members are where the first one ended.
TEST(PeerNode, AnotherRunBeginsWhereNobodyHasBeen) {
  PeerCluster first(testing::small_network_of_steps(200, "ring", 4));
  first.start_all();
  first.publish(first.roster(1));
  first.run_until_finished();
  const auto second = first.roster(2, {}, std::chrono::hours(1), "run-2");
  for (const auto& peer : first.peers) peer->models.clear();
  first.peers[0]->node->peer().take_roster(second, PeerShell::Source::kIssuer);  // it spreads
  first.run_until(
      [&] {
        return std::ranges::all_of(first.peers,
                                   [](const auto& peer) { return !peer->models.empty(); });
      },
      "the second run is finished");
  const auto expected = simulated_models(first.experiment);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(first.model(i), expected[i]) << i;
}

// One device is off while the run is stopped and another of the same name starts: it begins that
// one at its beginning too. A restart within a run goes on from the checkpoint.
TEST(PeerNode, ARunThatIsStartedAgainUnderItsNameBeginsFromTheInitialModel) {
  PeerCluster cluster(testing::small_network_of_steps(200, "ring", 4));
  cluster.run_id = "first";
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until_finished();
  cluster.stop(3);
  cluster.start(3);
  EXPECT_TRUE(cluster.peers[3]->node->peer().is_finished()) << "it is the same run";
  cluster.stop(3);
  cluster.publish(cluster.stopped_roster(2));
  for (const auto& peer : cluster.peers) peer->models.clear();
  cluster.experiment.options.train.train.learning_rate /= 2;
  cluster.run_id = "second";
  cluster.start(3);
  cluster.publish(cluster.roster(3));
  cluster.run_until_finished();
  const auto expected = simulated_models(cluster.experiment);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(cluster.model(i), expected[i]) << i;
}

// What came of a rate that is too high is nothing to go on from; a renewed roster changes nothing,
// a new epoch does.
TEST(PeerNode, ARunThatFailedBeginsAnewWithTheNextEpochFromWhatWasSound) {
  NetOptions options = testing::small_network_of_steps(20'000, "ring", 2);
  options.model.kind = "mlp";
  PeerCluster cluster(options, true);
  cluster.shorten_timeouts();
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return step_of(cluster, 0) >= 50 && step_of(cluster, 1) >= 50; },
                    "50 steps");
  const double rate = cluster.experiment.options.train.train.learning_rate;
  cluster.experiment.options.train.train.learning_rate = 1e6;
  cluster.publish(cluster.roster(2));
  const auto has_failed = [&](std::size_t i) {
    return cluster.peers[i]->node->peer().report().problem.starts_with("the loss is not finite");
  };
  cluster.run_until([&] { return has_failed(0) && has_failed(1); }, "it has diverged");
  const std::size_t failures = cluster.log.count("the run cannot go on");
  cluster.publish(cluster.roster(2));  // renewed
  EXPECT_TRUE(has_failed(0) && has_failed(1));
  cluster.experiment.options.train.train.learning_rate = rate;
  cluster.publish(cluster.roster(3));
  cluster.run_until([&] { return step_of(cluster, 0) >= 150 && step_of(cluster, 1) >= 150; },
                    "it trains again");
  EXPECT_EQ(cluster.log.count("the run cannot go on"), failures);
}

// Whether they exchange at every step, or all are in the middle of a long local phase.
TEST(PeerNode, ARosterThatExpiresEndsAllLinksUntilItIsRenewed) {
  struct Training {
    std::string algorithm;
    std::string mixing;
    int period;
  };
  for (const Training& of :
       {Training{"dpsgd", "own", 1}, Training{"dpsgd", "own", 20'000},
        Training{"all-reduce", "own", 20'000}, Training{"push-sum", "push", 20'000}}) {
    SCOPED_TRACE(of.algorithm + " every " + std::to_string(of.period));
    NetOptions options = testing::small_network_of_steps(10'000'000, "ring", 3, of.algorithm);
    options.topology.mixing = of.mixing;
    options.train.train.local_steps = of.period;
    PeerCluster cluster(options, true);
    cluster.shorten_timeouts();
    cluster.start_all();
    cluster.publish(cluster.roster(1));
    cluster.run_until([&] { return cluster.peers[0]->node->peer().report().exchange >= 3; },
                      "3 exchanges");
    const std::uint64_t step = step_of(cluster, 0);
    cluster.clock.put_forward(std::chrono::hours(2));
    cluster.run_until([&] { return cluster.peers[0]->node->peer().report().state == "refused"; },
                      "the roster has expired");
    EXPECT_NE(cluster.peers[0]->node->peer().report().problem.find("expired"), std::string::npos);
    cluster.publish(cluster.roster(1));
    cluster.run_until([&] { return cluster.peers[0]->node->peer().report().neighbours == 2; },
                      "all goes on with the renewed roster");
    EXPECT_GE(step_of(cluster, 0), step);
  }
}

TEST(PeerNode, WhoCannotUseItsDirectorySaysSoAndListensNoMore) {
  PeerCluster cluster(testing::small_network("ring", 2));
  const PeerCluster::Peer& peer = *cluster.peers[0];
  std::ofstream(peer.directory / "gossip") << "in its place\n";
  PeerNode::Options options = cluster.options;
  options.directory = peer.directory / "gossip";
  options.links.listen = identity::HostPort{"127.0.0.1", 0};
  PeerNode node({cluster.loop, cluster.clock, cluster.log, *peer.identity}, options,
                PeerData{.rows = cluster.experiment.parts[0]},
                {.report = [](const auto&) {}, .hand_in = [](const auto&, const auto&) {}}, {});
  const auto started = node.start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message().find("gossip"), std::string::npos);
}

// Who is alone never waits for anybody, and has no pause but those that it makes.
TEST(PeerNode, WhoIsAloneHearsOfAnotherEpochOfAnExpiryAndOfTheEnd) {
  for (const std::string algorithm : {"dpsgd", "all-reduce", "push-sum"}) {
    SCOPED_TRACE(algorithm);
    NetOptions options = testing::small_network_of_steps(10'000'000, "ring", 2, algorithm);
    if (algorithm == "push-sum") options.topology.mixing = "push";
    PeerCluster cluster(options, true);
    cluster.shorten_timeouts();
    cluster.start_all();
    cluster.publish(cluster.roster(1));
    cluster.run_until([&] { return step_of(cluster, 0) >= 10; }, "10 steps");
    cluster.stop(1);
    cluster.stop(0);
    cluster.options.start_patience = std::chrono::milliseconds(300);
    cluster.start(0);
    const auto report = [&] { return cluster.peers[0]->node->peer().report(); };
    const auto trains_on = [&] {
      const std::uint64_t step = report().step;
      cluster.run_until([&] { return report().step > step + 50 && report().neighbours == 0; },
                        "it trains on alone");
    };
    trains_on();
    cluster.clock.put_forward(std::chrono::hours(2));
    cluster.run_until([&] { return report().state == "refused"; }, "the roster has expired");
    cluster.publish(cluster.roster(1));
    trains_on();
    cluster.publish(cluster.roster(2, {0}));
    trains_on();
    EXPECT_EQ(report().epoch, 2U);
    EXPECT_EQ(report().expected, 0U);
    cluster.publish(cluster.stopped_roster(3));
    cluster.run_until([&] { return report().state == "ended"; }, "it has ended");
  }
}

// A change of epoch is no start: neither who is away nor who has never been there is waited for.
// The three that go on of five are a quorum, and so need not keep to a pace.
TEST(PeerNode, AChangeOfEpochDoesNotWaitForWhoIsAway) {
  for (const std::string algorithm : {"dpsgd", "all-reduce", "push-sum"}) {
    SCOPED_TRACE(algorithm);
    NetOptions options = testing::small_network_of_steps(10'000'000, "complete", 5, algorithm);
    if (algorithm == "push-sum") options.topology.mixing = "push";
    PeerCluster cluster(options, true);
    cluster.shorten_timeouts();
    cluster.options.start_patience = std::chrono::minutes(10);
    for (const std::size_t i : {0U, 1U, 2U, 3U}) cluster.start(i);
    cluster.publish(cluster.roster(1, {0, 1, 2, 3}));
    const auto report = [&] { return cluster.peers[0]->node->peer().report(); };
    cluster.run_until([&] { return report().step >= 10; }, "10 steps");
    cluster.stop(3);
    cluster.run_until([&] { return report().reachable == 3; }, "one is known to be away");
    cluster.peers[4]->port = 1;
    cluster.publish(cluster.roster(2));
    const std::uint64_t step = report().step;
    cluster.run_until(
        [&] {
          return report().epoch == 2 && report().step > step + 50 && report().neighbours == 2;
        },
        "three go on");
    cluster.start(3);
    cluster.run_until([&] { return report().neighbours == 3; }, "who comes back is heard");
  }
}

// Failure detection has no time to find it out, and each epoch would begin with another minute.
TEST(PeerNode, WhoJoinsAndIsNeverStartedIsWaitedForInNoEpoch) {
  for (const std::string algorithm : {"dpsgd", "all-reduce", "push-sum"}) {
    SCOPED_TRACE(algorithm);
    NetOptions options = testing::small_network_of_steps(10'000'000, "ring", 7, algorithm);
    if (algorithm == "push-sum") options.topology.mixing = "push";
    PeerCluster cluster(options, true);
    cluster.shorten_timeouts();
    cluster.options.start_patience = std::chrono::minutes(10);
    cluster.options.membership.probe_period = std::chrono::minutes(10);
    std::vector<std::size_t> members = {0, 2, 4, 6};  // the newcomers' places lie between theirs
    for (const std::size_t i : members) cluster.start(i);
    cluster.publish(cluster.roster(1, members));
    const auto all_advance = [&] {
      std::map<std::size_t, std::uint64_t> from;
      for (const std::size_t i : {0U, 2U, 4U, 6U}) from[i] = step_of(cluster, i);
      cluster.run_until(
          [&] {
            return std::ranges::all_of(from, [&](const auto& entry) {
              return step_of(cluster, entry.first) > entry.second + 20;
            });
          },
          "all four advance");
    };
    all_advance();
    for (const std::size_t newcomer : {1U, 3U, 5U}) {
      cluster.peers[newcomer]->port = 1;
      members.push_back(newcomer);
      std::ranges::sort(members);
      cluster.publish(cluster.roster(members.size(), members));
      all_advance();
    }
    EXPECT_EQ(cluster.peers[0]->node->peer().report().epoch, 7U);
  }
}

TEST(PeerNode, AChangeOfEpochTrainsNoLocalPhaseTwice) {
  struct Training {
    std::string algorithm;
    std::string topology = "ring";
    std::string mixing = "own";
    bool lossy = true;
  };
  for (const auto& [algorithm, topology, mixing, lossy] :
       {Training{"dpsgd"}, Training{"qg-dsgdm"}, Training{"diloco"}, Training{"all-reduce"},
        Training{"diloco-all"}, Training{"sgp"}, Training{"sgp", "ring", "own", false},
        Training{"gradient-tracking"}, Training{"choco"}, Training{"d2", "ring", "lazy"},
        Training{"relaysgd", "path"}, Training{"detag"}}) {
    SCOPED_TRACE(algorithm);
    // Local phases that take much longer than it takes to look how far they are.
    NetOptions options = testing::small_network_of_steps(40'000, topology, 4, algorithm);
    options.topology.mixing = mixing;
    options.train.train.local_steps = 1000;
    PeerCluster cluster(options, lossy);
    cluster.start_all();
    cluster.publish(cluster.roster(1));
    for (std::uint64_t epoch = 2; epoch <= 6; ++epoch) {
      const std::uint64_t exchange = cluster.peers[0]->node->peer().report().exchange;
      cluster.run_until(
          [&] { return cluster.peers[0]->node->peer().report().exchange >= exchange + 3; },
          "3 exchanges in epoch " + std::to_string(epoch - 1));
      cluster.publish(cluster.roster(epoch));
    }
    cluster.run_until_finished();
    for (const auto& peer : cluster.peers) {
      EXPECT_EQ(peer->last->epoch, 6U);
      EXPECT_EQ(peer->trained, options.run.steps) << peer->name;
    }
  }
}

// Members have other places in the next epoch: what computes in the former one asks for nobody.
TEST(PeerNode, ARosterThatIsRenewedBeforeItWasAdoptedIsAdopted) {
  NetOptions options = testing::small_network_of_steps(10'000'000, "complete", 4);
  options.train.train.local_steps = 20'000;
  PeerCluster cluster(options, true);
  cluster.shorten_timeouts();
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return cluster.peers[0]->node->peer().report().exchange >= 2; },
                    "2 exchanges");
  for (int renewals = 0; renewals < 3; ++renewals) {
    cluster.publish(cluster.roster(2, {0, 1}));
    cluster.clock.put_forward(std::chrono::minutes(1));
  }
  cluster.run_until(
      [&] {
        const auto report = cluster.peers[0]->node->peer().report();
        return report.epoch == 2 && report.expected == 1 && report.neighbours == 1;
      },
      "two go on");
}

TEST(PeerNode, AStoppedNetworkKeepsItsModelAndSaysHowFarItCame) {
  PeerCluster cluster(testing::small_network_of_steps(1'000'000, "ring", 3), true);
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return step_of(cluster, 0) >= 10; }, "10 steps");
  cluster.publish(cluster.stopped_roster(2));
  cluster.run_until(
      [&] {
        return std::ranges::all_of(cluster.peers, [](const auto& peer) {
          return peer->node->peer().report().state == "ended";
        });
      },
      "all have ended");
  EXPECT_GE(step_of(cluster, 0), 10U);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.stop(i);  // what is to be kept is kept then
    EXPECT_TRUE(std::filesystem::exists(cluster.peers[i]->directory / "gossip/model.safetensors"));
  }
}

TEST(PeerNode, WhoIsToBeDialledAndDoesNotListenIsTold) {
  PeerCluster cluster(testing::small_network_of_steps(20, "ring", 2));
  cluster.undialled = {1};
  cluster.start_all();
  cluster.undialled.clear();
  cluster.peers[1]->port = 1;
  cluster.publish(cluster.roster(1));
  const std::string deaf = "as the roster says, but it does not listen: set gossip.listen";
  EXPECT_EQ(cluster.log.count(deaf), 1U);
  EXPECT_THAT(cluster.peers[1]->node->peer().report().problem, ::testing::HasSubstr(deaf));
  cluster.run_until_finished();
}

TEST(PeerNode, SaysWhereTheModelOfAFinishedRunIs) {
  PeerCluster cluster(testing::small_network_of_steps(20, "ring", 2));
  cluster.start_all();
  EXPECT_EQ(cluster.peers[0]->node->peer().model_file(), "");
  cluster.publish(cluster.roster(1));
  cluster.run_until_finished();
  const auto file = cluster.peers[0]->directory / "gossip/model.safetensors";
  const auto written = [&] { return cluster.peers[0]->node->peer().model_file() == file; };
  cluster.run_until(written, "its model is written");
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(cluster.log.count("the model with which the run ended is in " + file.string()), 1U);
}

TEST(PeerNode, ItsDirectoryIsMadeAgainWhereItIsRemoved) {
  PeerCluster cluster(testing::small_network_of_steps(2000, "ring", 2));
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return step_of(cluster, 0) > 0; }, "they train");
  std::filesystem::remove_all(cluster.peers[0]->directory / "gossip");
  cluster.run_until_finished();
  const auto file = cluster.peers[0]->directory / "gossip/model.safetensors";
  cluster.run_until([&] { return cluster.peers[0]->node->peer().model_file() == file; },
                    "its model is written");
}

TEST(PeerNode, WhoNeverHeardANeighbourSaysSoAtTheEnd) {
  PeerCluster cluster(testing::small_network_of_steps(20, "ring", 2));
  cluster.options.start_patience = std::chrono::milliseconds(100);
  cluster.shorten_timeouts();
  cluster.undialled = {0, 1};  // and nobody relays
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until_finished();
  EXPECT_EQ(cluster.log.count("no neighbour was ever heard: 20 steps on this"), 2U);
  for (const auto& peer : cluster.peers) {
    EXPECT_EQ(peer->last->state, "finished");
    EXPECT_NE(peer->last->problem.find("no neighbour was ever heard"), std::string::npos);
  }
}

}  // namespace
}  // namespace starling::gossip
