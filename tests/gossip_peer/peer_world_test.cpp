// SPDX-License-Identifier: Apache-2.0
// Whole networks of peers in virtual time: without faults they end with the models of the
// recurrence, and what befalls them has the consequences that it should, one thing at a time.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <fstream>
#include <ranges>

#include "core/data/load.h"
#include "gossip/membership/overlay.h"
#include "gossip/peer/held_roster.h"
#include "gossip/peer/link_rules.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"
#include "tests/gossip_peer/peer_world.h"
#include "tests/gossip_peer/world_invariants.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using starling::testing::PeerWorld;
using starling::testing::simulated_models;
using ::testing::Contains;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;

TEST(PeerWorlds, WithoutFaultsTheModelsAreTheRecurrences) {
  for (const char* algorithm : {"dpsgd", "gradient-tracking", "choco", "qg-dsgdm", "sgp", "diloco",
                                "all-reduce", "diloco-all"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network("ring", 4, algorithm), 1, false);
    world.start_all();
    world.publish(world.roster(1));
    if (!world.run_until([&] { return world.all_finished(); }, 1h, "all have finished")) return;
    const auto expected = simulated_models(world.experiment);
    // The members sum in another order where they reduce.
    const bool reduces = std::string_view(algorithm).find("all") != std::string_view::npos;
    for (std::size_t i = 0; i < world.peers.size(); ++i) {
      EXPECT_THAT(world.model(i), Pointwise(FloatNear(reduces ? 1e-5F : 0), expected[i]));
      if (reduces) {
        EXPECT_EQ(world.model(i), world.model(0));
      }
    }
  }
}

// Two features, which the file of the second device has in another order, or not both.
class ColumnsByName : public ::testing::Test {
 protected:
  // The same rows whatever the order.
  std::string rows(const std::string& first, const std::string& second) const {
    const auto path = directory_.path() / (first + second + ".csv");
    std::ofstream file(path);
    file << first << "," << second << ",label\n";
    for (int row = 0; row < 90; ++row) {
      const auto value = [row](const std::string& name) {
        return name == "x" ? row % 3 + row / 100.0 : row % 7;
      };
      file << fmt::format("{},{},{}\n", value(first), value(second), row % 3);
    }
    return "csv:" + path.string();
  }
  NetOptions network() const {
    NetOptions options = testing::small_network("ring", 3);
    options.data.dataset = rows("x", "y");
    options.data.columns = {"x", "y"};
    return options;
  }
  static void give_second(PeerWorld& world, const std::string& dataset) {
    world.experiment.parts[1].dataset = *data::load_dataset(*data::DatasetSpec::parse(dataset));
    world.start_all();
    world.publish(world.roster(1));
  }

 private:
  starling::testing::TemporaryDirectory directory_;
};

TEST_F(ColumnsByName, TheirOrderIsTheRuns) {
  PeerWorld world(network(), 1, false);
  const auto expected = simulated_models(world.experiment);
  give_second(world, rows("y", "x"));
  world.run_to_end();
  for (std::size_t i = 0; i < world.peers.size(); ++i) EXPECT_EQ(world.model(i), expected[i]);
}

TEST_F(ColumnsByName, ARunThatNamesNoneHasTheOrderOfTheFileAfterOneThatDid) {
  PeerWorld world(network(), 1, false);
  give_second(world, rows("y", "x"));
  world.run_to_end();
  world.experiment.options.data.columns.clear();
  const auto expected = simulated_models(world.experiment);
  world.publish(world.roster(2, {}, 24h, "run-2"));
  world.run_for(1min);
  for (std::size_t i = 0; i < world.peers.size(); ++i) EXPECT_EQ(world.model(i), expected[i]);
}

TEST_F(ColumnsByName, WhoLacksOneDoesNotTakePart) {
  PeerWorld world(network(), 1, false);
  const auto run = [&] {
    give_second(world, rows("x", "z"));
    world.run_for(1s);
  };
  EXPECT_NONFATAL_FAILURE(run(), "it has no 'y'");  // of the invariants
  const auto failure = world.peers[1]->shell().machine().failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code(), "columns-differ");
}

// Whatever their names are; the log says so.
TEST_F(ColumnsByName, WithoutNamesTheirOrderCounts) {
  NetOptions options = network();
  options.data.columns.clear();
  PeerWorld world(options, 1, false);
  give_second(world, rows("x", "z"));
  world.run_to_end();
  EXPECT_THAT(world.said(1), ::testing::Contains(HasSubstr("count by position")));
}

TEST_F(ColumnsByName, ASimulationHasThemInTheRunsOrderToo) {
  NetOptions options = network();
  const auto expected = simulated_models(testing::prepared(options));
  options.data.dataset = rows("y", "x");
  EXPECT_EQ(simulated_models(testing::prepared(options)), expected);
  options.data.dataset = rows("x", "z");
  EXPECT_THAT(prepare(options).error().message(), HasSubstr("it has no 'y'"));
}

// Neighbours in the graph, and two on the cycle of failure detection.
TEST(PeerWorlds, OnARingAPeerHasFourLinks) {
  PeerWorld world(testing::small_network_of_steps(200, "ring", 24), 1);
  world.phase = [] { return std::chrono::milliseconds(100); };
  world.start_all();
  world.publish(world.roster(1));
  const auto far = [&] { return world.peers[0]->shell().report().step >= 100; };
  world.run_until(far, 10min, "a hundred steps are done");
  for (const auto& peer : world.peers) {
    EXPECT_LE(peer->shell().transport().all_up().size(), 4U) << peer->name;
    EXPECT_EQ(peer->shell().report().reachable, 24U) << peer->name;
  }
  for (std::size_t i = 8; i < 24; ++i) world.kill(i);  // a third is left: no quorum
  const auto know = [&] {
    return std::ranges::all_of(std::views::iota(0, 8), [&](int i) {
      return world.peers[i]->shell().report().reachable == 8;
    });
  };
  world.run_until(know, 1min, "those who are left know it");
}

// In each of five epochs another member is missing, so that its neighbours on the ring and on the
// cycle of failure detection have others. What nobody needs any more ends when it is idle: the two
// links of the ring and the two of the cycle are left, which a few members have in common.
TEST(PeerWorlds, LinksThatEpochsLeaveBehindEnd) {
  PeerWorld world(testing::small_network_of_steps(1000, "ring", 24), 1);
  world.phase = [] { return std::chrono::seconds(1); };
  world.start_all();
  const auto run_for = [&](Duration time) {
    const TimePoint end = world.scheduler.now() + time;
    world.run_until([&] { return world.scheduler.now() >= end; }, 10min, "time has passed");
  };
  std::vector<std::size_t> members;
  identity::Roster roster;
  std::size_t most = 0;
  for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) {
    members.clear();
    for (std::size_t i = 0; i < 24; ++i) {
      if (i != 4 * epoch) members.push_back(i);
    }
    const auto signed_roster = world.roster(epoch, members);
    roster = signed_roster.roster();
    world.publish(signed_roster);
    run_for(20s);
    for (const std::size_t i : members) {
      most = std::max(most, world.peers[i]->shell().transport().all_up().size());
    }
  }
  EXPECT_GT(most, 4U);
  run_for(kIdleLink + 10s);
  const auto n = static_cast<Member>(members.size());
  for (Member self = 0; self < n; ++self) {
    const membership::Overlay overlay(self, names_of(roster), roster.run_identity(),
                                      {(self + 1) % n, (self + n - 1) % n});
    std::vector<Member> up;
    for (const auto& [member, hello] : world.peers[members[self]]->shell().transport().all_up()) {
      up.push_back(member);
    }
    std::ranges::sort(up);
    EXPECT_EQ(up, overlay.watched([](Member) { return false; })) << roster.members[self].name;
    EXPECT_LE(up.size(), 4U);
  }
}

// In good order: what was learned is kept, and the next process goes on from it.
TEST(PeerWorlds, AStoppedPeerGoesOnFromItsCheckpoint) {
  PeerWorld world(testing::small_network_of_steps(60, "ring", 4), 1);
  world.phase = [] { return std::chrono::milliseconds(100); };
  world.start_all();
  world.publish(world.roster(1));
  const auto step = [&](std::size_t index) { return world.peers[index]->shell().report().step; };
  world.run_until([&] { return step(1) >= 10; }, 1min, "ten steps are done");
  const std::uint64_t before = step(1);
  world.stop(1);
  world.start(1);
  EXPECT_GE(step(1) + 1, before);  // the local phase that was not mixed is lost
  EXPECT_EQ(std::ranges::count_if(
                world.lines,
                [](const auto& line) { return line.find("goes on from exchange") != line.npos; }),
            1);
  world.run_until([&] { return world.all_finished(); }, 10min, "all have finished");
}

// A process that is killed after the end has nothing but its disk.
TEST(PeerWorlds, AFullDiskAtTheEndLosesNothingOnceItHasRoom) {
  PeerWorld world(testing::small_network_of_steps(4, "ring", 4), 1);
  world.start_all();
  world.publish(world.roster(1));
  const auto keeps = [&] {
    return world.peers[1]->disk.open("gossip/model.safetensors").has_value();
  };
  world.disturb_disk(1, [](const auto& path) {
    return path.string().find(".safetensors") != std::string::npos
               ? sim::SimulatedDisk::Fault::kFull
               : sim::SimulatedDisk::Fault::kNone;
  });
  const auto problem = [&] { return world.peers[1]->shell().report().problem; };
  world.run_until([&] { return world.all_finished() && !problem().empty(); }, 10min,
                  "the run is over, and its model not kept");
  world.run_for(5min);
  EXPECT_FALSE(keeps());
  EXPECT_THAT(problem(), ::testing::HasSubstr("the checkpoint is not kept"));
  world.disturb_disk(1, {});
  world.run_until([&] { return keeps() && problem().empty(); }, 10min, "it is kept");
}

// One world after the other: the second peer's process is killed at the first, second, ... change
// of a file whose name begins with `of`, and started again, until there are no more changes.
void kill_at_each_change(const NetOptions& options, const std::string& of, int changes_min,
                         const std::function<void(PeerWorld& world)>& then) {
  using DiskFault = sim::SimulatedDisk::Fault;
  for (const DiskFault fault :
       {DiskFault::kCrashBefore, DiskFault::kTornWrite, DiskFault::kCrashAfter}) {
    for (int change = 1;; ++change) {
      SCOPED_TRACE(fmt::format("fault {} at change {}", static_cast<int>(fault), change));
      PeerWorld world(options, 1);
      world.phase = [] { return 100ms; };
      world.options.checkpoint_every = 300ms;
      world.begin();
      int changes = 0;
      world.disturb_disk(1, [&](const auto& path) {
        const bool is_meant = path.filename().string().starts_with(of);
        return is_meant && ++changes == change ? fault : DiskFault::kNone;
      });
      world.run_to_end();
      if (world.peers[1]->kills == 0) {
        EXPECT_GT(change, changes_min);
        break;
      }
      then(world);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(PeerWorlds, AKillWithinACheckpointLosesNoState) {
  NetOptions options = testing::small_network("exponential", 3, "diloco");
  options.run.steps = 20;
  kill_at_each_change(options, "checkpoint.", 6, [](PeerWorld& world) {
    EXPECT_THAT(world.said(1), Not(Contains(HasSubstr("state")))) << world.status();
  });
}

TEST(PeerWorlds, AKillWhileTheLastModelIsWrittenIsMadeGood) {
  kill_at_each_change(
      testing::small_network_of_steps(4, "ring", 4), "model.", 1, [](PeerWorld& world) {
        world.run_for(1min);
        std::vector<std::string> names;
        for (const auto& entry : *world.peers[1]->disk.list("gossip")) names.push_back(entry.name);
        EXPECT_THAT(names, ::testing::ElementsAre("checkpoint.safetensors", "checkpoint.state",
                                                  "model.safetensors", "roster"));
      });
}

// A loss ends an era of the state that neighbours share; messages of different eras are not mixed.
TEST(PeerWorlds, StateAlongTheEdgesBeginsAnewTogetherAfterALoss) {
  for (const std::string algorithm : {"gradient-tracking", "choco", "d2"}) {
    SCOPED_TRACE(algorithm);
    auto options = testing::small_network_of_steps(20'000, "ring", 4, algorithm);
    if (algorithm == "d2") options.topology.mixing = "lazy";
    PeerWorld world(options, 1);
    world.start_all();
    world.publish(world.roster(1));
    const auto step = [&] { return world.peers[0]->shell().report().step; };
    world.run_until([&] { return step() >= 50; }, 1min, "50 steps");
    world.stop(1);
    const std::uint64_t before = step();
    world.run_until([&] { return step() > before + 50; }, 1min, "the others go on");
    world.start(1);
    const auto hear_both = [&] {
      return std::ranges::all_of(
          world.peers, [](const auto& peer) { return peer->shell().report().neighbours == 2; });
    };
    world.run_until(hear_both, 1min, "all hear both neighbours again, in one era");
    EXPECT_FALSE(world.all_finished());
  }
}

// As a suspended laptop: the others go on, and when it goes on itself it finds its timers long due,
// what was sent before its links broke, and a run that is elsewhere.
TEST(PeerWorlds, AFrozenPeerIsBackSoon) {
  for (const auto& [algorithm, nodes] :
       {std::pair{"dpsgd", 5U}, {"choco", 5U}, {"all-reduce", 5U}, {"all-reduce:group=4", 8U}}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network_of_steps(20'000, "complete", nodes, algorithm), 1);
    world.phase = [&world] { return std::chrono::milliseconds(50 + world.rng.below(100)); };
    world.start_all();
    world.publish(world.roster(1));
    const auto exchange = [&](std::size_t i) { return world.peers[i]->shell().report().exchange; };
    const auto time_is = [&](Duration time) { return world.scheduler.now() >= TimePoint{} + time; };
    for (const Duration time : {20s, 80s}) world.at(time, [] {});
    world.run_until([&] { return time_is(20s); }, 30s, "it runs");
    world.freeze(2);
    const Exchange before = exchange(2);
    world.run_until([&] { return time_is(80s); }, 2min, "it is frozen");
    EXPECT_EQ(exchange(2), before);
    EXPECT_GT(exchange(0), before + 150) << "the others go on";
    world.thaw(2);
    world.run_until([&] { return exchange(2) + 5 > exchange(0); }, 15s, "it is where they are");
    const auto all_reachable = [&, count = nodes] {
      return std::ranges::all_of(
          world.peers, [&](const auto& peer) { return peer->shell().report().reachable == count; });
    };
    world.run_until(all_reachable, 15s, "all know it");
  }
}

TEST(PeerWorlds, ARevokedSignerLeadsNobodyAway) {
  PeerWorld world(testing::small_network_of_steps(2000, "ring", 4), 1);
  world.start_all();
  const auto all_hold = [&](std::uint64_t epoch) {
    return std::ranges::all_of(world.peers, [epoch](const auto& peer) {
      const EpochSession* session = peer->shell().machine().session();
      return session != nullptr && session->epoch() == epoch;
    });
  };
  using Signer = PeerWorld::Signer;
  world.publish(world.sign(world.roster(1).roster(), Signer::kDeputy));
  world.run_until([&] { return all_hold(1); }, 10s, "a second coordinator counts");
  world.revoke_deputy();
  world.give(3, world.roster(2));
  world.run_until([&] { return all_hold(2); }, 10s, "all hear that it does not any more");
  world.give(0, world.sign(world.roster(3).roster(), Signer::kDeputy));
  world.at(10s, [] {});
  world.run_until([&] { return world.scheduler.now() >= TimePoint{} + 10s; }, 1min, "time passes");
  EXPECT_TRUE(all_hold(2));
  world.give(1, world.roster(4));
  world.run_until([&] { return all_hold(4); }, 10s, "the next one is taken");
}

// Its process runs on with the roster that it has; a liar would too.
TEST(PeerWorlds, NobodySpeaksWithWhoIsExpelled) {
  for (const char* algorithm : {"dpsgd", "all-reduce"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network_of_steps(500, "complete", 5, algorithm), 1);
    world.start_all();
    world.publish(world.roster(1));
    const auto& expelled = world.peers[4];
    world.run_until([&] { return expelled->shell().report().step >= 50; }, 1min, "50 steps");
    // It hears nothing of what follows.
    for (const auto& peer : world.peers) world.network.cut(peer->name, expelled->name);
    for (std::size_t i = 0; i < 4; ++i) world.give(i, world.roster(2, {0, 1, 2, 3}));
    const auto others_finish = [&] {
      return std::ranges::all_of(std::views::iota(0, 4),
                                 [&](int i) { return world.peers[i]->shell().is_finished(); });
    };
    world.at(world.scheduler.now() - TimePoint{} + 5s, [&] {
      for (const auto& peer : world.peers) world.network.mend(peer->name, expelled->name);
    });
    world.run_until(others_finish, 10min, "the others finish");
    EXPECT_EQ(expelled->shell().machine().roster()->epoch, 1U);
    EXPECT_TRUE(expelled->shell().transport().all_up().empty());
    EXPECT_THAT(expelled->shell().report().problem, HasSubstr("refuses this device"));
  }
}

TEST(PeerWorlds, WhoCannotBeDialledIsNamed) {
  PeerWorld world(testing::small_network_of_steps(500, "complete", 3), 1);
  for (const std::size_t i : {0U, 1U}) world.start(i);
  world.publish(world.roster(1));
  const auto problem = [&](std::size_t i) { return world.peers[i]->shell().report().problem; };
  world.run_until([&] { return !problem(0).empty() && !problem(1).empty(); }, 10s, "both say so");
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_EQ(problem(i), world.peers[2]->name + " cannot be dialled: nothing listens");
  }
}

// As where its file has texts as labels.
TEST(PeerWorlds, WhoRefusesIsNotWaitedFor) {
  for (const char* algorithm : {"dpsgd", "sgp", "ad-psgd", "all-reduce", "all-reduce:group=2"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network("ring", 6, algorithm), 1);
    world.options.own_classes = true;
    world.may_refuse = {5};
    world.start(5);
    world.options.own_classes = false;
    for (std::size_t i = 0; i < 5; ++i) world.start(i);
    world.publish(world.roster(1));
    const auto have_begun = [&] {
      return std::ranges::all_of(std::views::iota(0, 5), [&](int i) {
        return world.peers[static_cast<std::size_t>(i)]->shell().report().step >= 5;
      });
    };
    world.run_until(have_begun, 20s, "the others have begun");
    EXPECT_EQ(world.peers[5]->shell().report().state, "refused");
    EXPECT_THAT(world.said(0), ::testing::Contains(HasSubstr("has texts as labels")));
  }
}

// Their rows have a column more.
void give_another_model(PeerWorld& world, const std::vector<std::size_t>& indices) {
  NetOptions options = world.experiment.options;
  options.data.dataset = "synthetic:rows=600,features=13,classes=3";
  const Experiment other = testing::prepared(options);
  for (const std::size_t i : indices) world.experiment.parts[i] = other.parts[i];
}

TEST(PeerWorlds, WhereTwoOfFiveHaveAnotherModelTheOthersGoOn) {
  for (const char* algorithm :
       {"dpsgd", "sgp", "push-sum", "all-reduce", "diloco-all", "all-reduce:group=3"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network_of_steps(500, "complete", 5, algorithm), 1);
    give_another_model(world, {2, 3});
    world.may_refuse = {2, 3};
    world.begin();
    const auto others_finish = [&] {
      return std::ranges::all_of(std::vector{0U, 1U, 4U}, [&](std::size_t i) {
        return world.peers[i]->shell().report().step >= 400;
      });
    };
    if (!world.run_until(others_finish, 60s, "the others go on")) continue;
    RecordProperty(algorithm,
                   fmt::format("{:.1f}", to_seconds(world.scheduler.now() - TimePoint{})));
    for (const std::size_t i : {2U, 3U}) {
      EXPECT_EQ(world.peers[i]->shell().report().state, "refused");
      EXPECT_THAT(world.peers[i]->shell().report().problem,
                  HasSubstr("this device's model has 42"));
    }
    for (const std::size_t i : {0U, 1U, 4U}) {
      EXPECT_EQ(world.peers[i]->shell().report().problem,
                "nothing is exchanged with node-03, node-04: their models have another size than "
                "this device's, which has 39 values");
      EXPECT_THAT(world.said(i), Not(Contains(HasSubstr("has held up"))));
    }
  }
}

TEST(PeerWorlds, WhoWasMendedTakesPartAgain) {
  for (const char* algorithm : {"dpsgd", "sgp", "all-reduce", "all-reduce:group=2"}) {
    for (const std::uint32_t members : {4U, 5U}) {  // nobody refuses; those two do
      SCOPED_TRACE(fmt::format("{} {}", algorithm, members));
      PeerWorld world(testing::small_network_of_steps(2000, "complete", members, algorithm), 1);
      const auto parts = world.experiment.parts;
      give_another_model(world, {2, 3});
      world.may_refuse = {2, 3};
      world.begin();
      world.run_for(10s);
      world.experiment.parts = parts;
      for (const std::size_t i : {2U, 3U}) {
        world.kill(i);
        world.lose_disk(i);
        world.start(i);
        world.give(i, world.roster(1));
      }
      world.run_to_end();
      for (std::size_t i = 0; i < members; ++i) {
        EXPECT_EQ(world.peers[i]->shell().report().problem, "");
        EXPECT_THAT(world.model(i), Pointwise(FloatNear(0.2F), world.model(0)));
      }
    }
  }
}

// No size is that of most: nobody refuses, both halves train apart, and everybody says why.
TEST(PeerWorlds, WhereTwoOfFourHaveAnotherModelAllSaySo) {
  for (const char* algorithm : {"dpsgd", "push-sum", "all-reduce", "all-reduce:group=2"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network_of_steps(2000, "complete", 4, algorithm), 1);
    give_another_model(world, {2, 3});
    world.begin();
    world.run_for(90s);  // the first exchange may wait for others to start
    for (std::size_t i = 0; i < 4; ++i) {
      const protocol::PeerReport report = world.peers[i]->shell().report();
      EXPECT_GE(report.step, 10U) << report.state;
      EXPECT_THAT(report.problem, HasSubstr(i < 2 ? "nothing is exchanged with node-03, node-04"
                                                  : "nothing is exchanged with node-01, node-02"));
    }
  }
}

TEST(PeerWorlds, OfTwoWithDifferentModelsBothSayWhatToDo) {
  for (const char* algorithm : {"dpsgd", "ad-psgd", "all-reduce"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network("ring", 2, algorithm), 1);
    give_another_model(world, {1});
    world.may_refuse = {0, 1};
    world.begin();
    const auto both_refuse = [&] {
      return std::ranges::all_of(
          world.peers, [](const auto& peer) { return peer->shell().report().state == "refused"; });
    };
    world.run_until(both_refuse, 10s, "both refuse");
    for (const auto& peer : world.peers) {
      EXPECT_THAT(peer->shell().report().problem,
                  HasSubstr("start each device that was changed again, and this one"));
    }
  }
}

// What was said of the first exchange, before anybody could know that all have just started.
TEST(PeerWorlds, ThatAQuorumWasMissedIsNotReportedOnceItIsThereAgain) {
  PeerWorld world(testing::small_network_of_steps(500, "complete", 5, "all-reduce"), 1);
  for (std::size_t i = 0; i < 4; ++i) world.start(i);
  world.publish(world.roster(1));
  const auto said = [&] {
    return std::ranges::any_of(world.lines, [](const std::string& line) {
      return line.find("no quorum of members that were not started") != std::string::npos;
    });
  };
  world.run_until(said, 3min, "exchange 0 had no quorum");
  world.run_to_exchange(0, 20);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_THAT(world.peers[i]->shell().report().problem, Not(HasSubstr("quorum")));
  }
}

TEST(PeerWorlds, AStoppedRunEndsEverywhere) {
  PeerWorld world(testing::small_network_of_steps(1000, "ring", 4), 1);
  world.start_all();
  world.publish(world.roster(1));
  const auto all_are = [&](std::string_view state) {
    return std::ranges::all_of(
        world.peers, [&](const auto& peer) { return peer->shell().report().state == state; });
  };
  world.run_until([&] { return world.peers[0]->shell().report().step > 5; }, 1min, "it runs");
  world.give(2, world.stopped_roster(2));  // the others hear of it
  world.run_until([&] { return all_are("ended"); }, 1min, "all have ended");
}

// Of what is pushed nothing is lost or made, however links break: what an edge holds comes with the
// next message. Without learning the models' mass stays too, to the last bit.
TEST(PeerWorlds, NoMassIsLostWithLinks) {
  for (const char* algorithm : {"push-sum", "sgp"}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", algorithm, seed));
      auto options = testing::small_network_of_steps(60, "exponential", 6, algorithm);
      options.train.train.learning_rate = 0;
      PeerWorld world(options, seed);
      world.phase = [&] { return std::chrono::milliseconds(world.rng.below(500)); };
      world.start_all();
      world.publish(world.roster(1));
      Rng rng({.seed = seed, .purpose = Purpose::kTest, .round = 3});
      for (int second = 1; second < 30; ++second) {
        world.at(std::chrono::seconds(second), [&] {
          const std::string& a = world.peers[rng.below(6)]->name;
          const std::string& b = world.peers[rng.below(6)]->name;
          if (rng.below(2) == 0) return world.network.reset(a, b);
          world.network.cut(a, b);
          world.scheduler.schedule(world.scheduler.now() + std::chrono::seconds(rng.below(4)),
                                   [&world, a, b] { world.network.mend(a, b); });
        });
      }
      std::vector<std::uint64_t> before;
      std::size_t events = 0;
      world.run_until(
          [&] {
            if (++events % 10 > 0) return world.all_finished();
            const std::vector<std::uint64_t> mass = world.invariants().mass();
            if (before.empty()) before = mass;
            return mass != before || world.all_finished();
          },
          1h, "all have finished");
      EXPECT_EQ(world.invariants().mass(), before);
      EXPECT_TRUE(world.invariants().expect_all_mass());
    }
  }
}

struct Silence {
  const char* name;
  std::vector<std::pair<std::size_t, std::size_t>> ways;  // from, to
  std::optional<std::size_t> frozen = {};                 // no way to it or from it
};

// The longest time in which a peer that is not cut off ended no exchange.
class LongestStop {
 public:
  LongestStop(const PeerWorld& world, const Silence& silence)
      : world_(world), frozen_(silence.frozen), ended_(5), since_(5, world.scheduler.now()) {}

  void look() {
    for (std::size_t peer = 0; peer < ended_.size(); ++peer) {
      if (peer == frozen_) continue;
      const Exchange now_ended = world_.progress(peer).exchange;
      const Duration stood = world_.scheduler.now() - since_[peer];
      if (ended_[peer] > 0 && stood > longest_) longest_ = stood;
      if (now_ended != ended_[peer]) since_[peer] = world_.scheduler.now();
      ended_[peer] = now_ended;
    }
  }
  Duration longest() const { return longest_; }

 private:
  const PeerWorld& world_;
  std::optional<std::size_t> frozen_;
  std::vector<Exchange> ended_;
  std::vector<TimePoint> since_;
  Duration longest_{};
};

// Links look whole, and nothing passes for a minute. Nobody waits for it longer than once, not even
// who is at an end of that link.
TEST(PeerWorlds, AnAllReduceWaitsForASilentLinkOnce) {
  const std::vector<Silence> silences = {
      {"link of the gatherer", {{0, 1}, {1, 0}}},
      {"link between two others", {{2, 3}, {3, 2}}},
      {"one way to the gatherer", {{1, 0}}},
      {"one way from the gatherer", {{0, 1}}},
      {"one way between two others", {{2, 3}}},
      {"frozen peer", {{2, 0}, {2, 1}, {2, 3}, {2, 4}, {0, 2}, {1, 2}, {3, 2}, {4, 2}}, 2},
      {"frozen gatherer", {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 0}, {2, 0}, {3, 0}, {4, 0}}, 0},
  };
  for (const Silence& silence : silences) {
    SCOPED_TRACE(silence.name);
    PeerWorld world(testing::small_network_of_steps(400, "complete", 5, "all-reduce"), 1);
    world.phase = [&world] { return std::chrono::milliseconds(200 + world.rng.below(300)); };
    world.start_all();
    world.publish(world.roster(1));
    const auto switch_ways = [&](bool cut) {
      for (const auto& [from, to] : silence.ways) {
        const std::string& a = world.peers[from]->name;
        const std::string& b = world.peers[to]->name;
        if (cut) {
          world.network.cut(a, b);
        } else {
          world.network.mend(a, b);
        }
      }
    };
    world.at(20s, [&] { switch_ways(true); });
    world.at(80s, [&] { switch_ways(false); });
    LongestStop stop(world, silence);
    const auto look = [&] {
      stop.look();
      return world.all_finished();
    };
    if (!world.run_until(look, 1h, "all have finished")) return;
    const Duration longest = stop.longest();
    EXPECT_LT(to_seconds(longest), 5);
    RecordProperty(silence.name, fmt::format("{:.2f}", to_seconds(longest)));
    for (std::size_t i = 1; i < world.peers.size(); ++i) {
      EXPECT_EQ(world.model(i), world.model(0));
    }
  }
}

// Exchanges are so quick that who waits once is far behind, and copies a model: once, although a
// donor may not hear it, and not again and again because its gatherer does not.
TEST(PeerWorlds, NobodyStandsStillForLongBesideASilentLink) {
  for (const Silence& silence :
       {Silence{"both ways", {{0, 1}, {1, 0}}}, Silence{"one way to the gatherer", {{1, 0}}},
        Silence{"one way from the gatherer", {{0, 1}}},
        Silence{"one way between two others", {{2, 3}}}}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(::testing::Message() << silence.name << ", seed " << seed);
      PeerWorld world(testing::small_network_of_steps(100'000, "complete", 5, "all-reduce"), seed);
      world.phase = [&world] { return std::chrono::milliseconds(8 + world.rng.below(4)); };
      world.begin();
      world.run_for(10s);
      for (const auto& [from, to] : silence.ways) {
        world.network.cut(world.peers[from]->name, world.peers[to]->name);
      }
      LongestStop stop(world, silence);
      for (int i = 0; i < 600; ++i) {
        world.run_for(100ms);
        stop.look();
      }
      EXPECT_LT(to_seconds(stop.longest()), 5);
    }
  }
}

}  // namespace
}  // namespace starling::gossip
