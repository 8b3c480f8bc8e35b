// SPDX-License-Identifier: Apache-2.0
// protocols that average over all: who is taken back, and how soon.
#include "gossip/peer/all_reduce_protocol.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using starling::testing::PeerWorld;

NetOptions long_run(std::uint32_t nodes) {
  return testing::small_network_of_steps(100'000, "ring", nodes, "all-reduce");
}

void run_until_heard(PeerWorld& world, const std::vector<std::size_t>& peers, std::uint32_t heard) {
  const auto are_heard = [&] {
    return std::ranges::all_of(peers,
                               [&](std::size_t i) { return world.progress(i).heard == heard; });
  };
  world.run_until(are_heard, 10min, fmt::format("{} others are heard", heard));
}

void start_some(PeerWorld& world, const std::vector<std::size_t>& peers) {
  for (const std::size_t i : peers) world.start(i);
  world.publish(world.roster(1));
}

std::uint32_t reachable(const PeerWorld& world, std::size_t i) {
  return world.peers[i]->shell().report().reachable;
}

TEST(AllReduceProtocol, WhoWasCalledDeadWhileItsLinkWasWholeIsTakenBack) {
  PeerWorld world(long_run(3), 1);
  world.begin();
  run_until_heard(world, {0, 1, 2}, 2);
  const auto links = [&](std::size_t i) {
    return world.peers[i]->shell().transport().all_up().size();
  };
  world.freeze(2);
  const auto call_it_dead = [&] { return reachable(world, 0) == 2 && reachable(world, 1) == 2; };
  world.run_until(call_it_dead, 1min, "the others call it dead");
  run_until_heard(world, {0, 1}, 1);
  for (const std::size_t i : {0U, 1U}) EXPECT_EQ(links(i), 2U);
  world.thaw(2);
  run_until_heard(world, {0, 1, 2}, 2);
  for (const std::size_t i : {0U, 1U}) EXPECT_EQ(links(i), 2U);
}

// All say of each other that they live, and two of them have no link.
TEST(AllReduceProtocol, ThatSomebodyLivesDoesNotMakeALink) {
  PeerWorld world(long_run(3), 1);
  world.begin();
  run_until_heard(world, {0, 1, 2}, 2);
  world.network.reset("node-01", "node-03");
  world.network.cut("node-01", "node-03");
  world.network.cut("node-03", "node-01");
  world.run_for(20s);
  EXPECT_EQ(reachable(world, 0), 3U);
  EXPECT_EQ(reachable(world, 2), 3U);
  const Exchange exchange = world.progress(1).exchange;
  const TimePoint then = world.scheduler.now();
  world.run_to_exchange(1, exchange + 20);
  EXPECT_LT(world.scheduler.now() - then, 10s);
  EXPECT_EQ(world.progress(1).heard, 1U);
}

// The lowest gathers, and of the fourth nobody ever hears.
TEST(AllReduceProtocol, WhoLostAllIsBackBeforeItsPatienceWithTheStartIsOver) {
  for (const bool kept : {false, true}) {
    PeerWorld world(long_run(4), 1);
    start_some(world, {0, 1, 2});
    world.run_to_exchange(1, 20);
    // With a checkpoint of where the others are, nothing shows that the network is under way.
    if (kept) {
      world.stop(0);
    } else {
      world.kill(0);
      world.lose_disk(0);
    }
    if (!kept) world.run_to_exchange(1, 40);
    const TimePoint back = world.scheduler.now();
    world.start(0);
    if (!kept) world.give(0, world.roster(1));
    run_until_heard(world, {0, 1, 2}, 2);
    EXPECT_LT(world.scheduler.now() - back, 5s) << kept;
  }
}

// All begin before there is any link, and two have theirs long after the third has its.
TEST(AllReduceProtocol, WhatIsSentBeforeALinkIsThereIsNotLost) {
  PeerWorld world(long_run(3), 1);
  world.slow[{"node-02", "node-03"}] = world.slow[{"node-03", "node-02"}] = 100;
  world.begin();
  const auto are_linked = [&] { return world.peers[1]->shell().transport().all_up().size() == 2; };
  world.run_until([&] { return world.peers[0]->shell().transport().all_up().size() == 2; }, 1s,
                  "the first has its links");
  EXPECT_FALSE(are_linked());
  EXPECT_EQ(world.progress(0).exchange, 0U);
  world.run_until(are_linked, 10s, "the second has its links");
  world.slow.clear();
  const TimePoint linked = world.scheduler.now();
  world.run_to_exchange(0, 1);
  EXPECT_LT(world.scheduler.now() - linked, 1s);
  EXPECT_EQ(world.progress(0).heard, 2U);
}

// A change of epoch: who would gather was not there in the one before.
TEST(AllReduceProtocol, WhoIsKnownToBeAwayIsNotWaitedForUntilItComes) {
  PeerWorld world(long_run(3), 1);
  world.options.patience_min = 10s;
  for (const std::size_t i : {1U, 2U}) world.start(i);
  world.publish(world.roster(1, {1, 2}));
  world.run_to_exchange(1, 5);
  const TimePoint then = world.scheduler.now();
  world.publish(world.roster(2));
  const auto are_there = [&] {
    return std::ranges::all_of(std::array{1U, 2U}, [&](std::size_t i) {
      const EpochSession* const session = world.peers[i]->shell().machine().session();
      return session != nullptr && session->epoch() == 2 && world.progress(i).exchange >= 20;
    });
  };
  world.run_until(are_there, 1h, "two go on in the next epoch");
  EXPECT_LT(world.scheduler.now() - then, world.options.patience_min);
  world.start(0);
  world.give(0, world.roster(2));
  run_until_heard(world, {0, 1, 2}, 2);
}

// It has nobody to train with, and each of its exchanges would last as long as a start.
TEST(AllReduceProtocol, WhoJoinsWhenAllHaveFinishedTakesTheirModel) {
  PeerWorld world(testing::small_network_of_steps(40, "ring", 3, "all-reduce"), 1);
  start_some(world, {0, 1});
  world.run_to_end();
  world.start(2);
  world.give(2, world.roster(1));
  const TimePoint came = world.scheduler.now();
  world.run_to_end();
  EXPECT_LT(world.scheduler.now() - came, 2s);
  EXPECT_EQ(world.copies_begun(2), 1);
  EXPECT_EQ(world.model(0), world.model(1));
  EXPECT_EQ(world.model(2), world.model(0));
}

// Whenever it has a model the others are elsewhere.
TEST(AllReduceProtocol, WhoseLinkIsTooSlowToTakePartIsToldSo) {
  PeerWorld world(long_run(3), 1);
  world.begin();
  run_until_heard(world, {0, 1, 2}, 2);
  for (const char* other : {"node-01", "node-02"}) {
    world.slow[{other, "node-03"}] = world.slow[{"node-03", other}] = 300;
  }
  world.run_for(1min);
  EXPECT_GT(world.copies_begun(2), 5);
  const auto said = [&](std::size_t i) {
    return std::ranges::count_if(world.said(i), [](const std::string& line) {
      return line.find("to copy a model and") != std::string::npos;
    });
  };
  EXPECT_EQ(said(2), 1);
  EXPECT_EQ(said(0) + said(1), 0);
}

// Who is stopped for a while, again and again, takes part in between.
TEST(AllReduceProtocol, WhoCopiesNowAndThenIsNotCalledTooSlow) {
  PeerWorld world(long_run(3), 1);
  world.begin();
  for (int i = 0; i < 5; ++i) {
    run_until_heard(world, {0, 1, 2}, 2);
    world.freeze(2);
    world.run_for(10s);
    world.thaw(2);
  }
  run_until_heard(world, {0, 1, 2}, 2);
  EXPECT_GE(world.copies_begun(2), 3);
  for (const std::string& line : world.said(2)) {
    EXPECT_EQ(line.find("to copy a model and"), std::string::npos) << line;
  }
}

// --- liars ---------------------------------------------------------------------------------------

// The first two of three tell the third that they have come so far, which it is not: it waits for
// them, who take a while for a phase.
class FurtherByWord : public ::testing::Test {
 protected:
  void run_until_waiting() {
    for (const std::size_t i : {0U, 1U}) {
      world.peers[i]->training_time = [this] { return slow ? Duration(2s) : Duration(10ms); };
    }
    world.peers[2]->training_time = [] { return 10ms; };
    world.run_to_exchange(2, 40);
    slow = true;
    const Exchange then = world.progress(2).exchange;
    const auto waits = [&] {
      return world.progress(2).exchange > then && world.progress(2).state == "waiting";
    };
    world.run_until(waits, 1min, "it waits for the others");
  }
  void claim(Progress next) {
    for (const Member liar : {0U, 1U}) {
      const protocol::ReduceNote note{
          .epoch = 1, .at = next, .what = protocol::reduce::Ahead{{liar}}};
      world.peers[liar]->shell().transport().send(2, note);
    }
  }
  void run_until_it_believes_a_few_more() {
    world.begin();
    run_until_waiting();
    const Exchange exchange = world.progress(2).exchange;
    claim({.backed = exchange + 6, .exchange = exchange + 6});
    world.run_until([&] { return is_catching_up(); }, 1s, "it believes them");
  }
  // Whether it copied a model for that; it goes on with the others in any case.
  bool believes_many_more() {
    run_until_waiting();
    claim({.backed = 90'000, .exchange = 90'000});
    world.run_for(1s);
    const bool believes = world.copies_begun(2) > 0;
    slow = false;
    run_until_heard(world, {0, 1, 2}, 2);
    return believes;
  }
  bool is_catching_up() const { return world.progress(2).state == "catching-up"; }

  PeerWorld world{long_run(3), 1};
  bool slow = false;
};

// Their model shows that they are not further.
TEST_F(FurtherByWord, AModelThatIsNoFurtherIsNotTakenForOneThatIs) {
  run_until_it_believes_a_few_more();
  world.run_until([&] { return !is_catching_up(); }, 10s, "it sees their model");
  EXPECT_EQ(world.copies_begun(2), 1);
  EXPECT_LE(world.progress(2).exchange, world.progress(0).exchange);
  slow = false;
  run_until_heard(world, {0, 1, 2}, 2);
  EXPECT_EQ(world.copies_begun(2), 1);
}

// Nobody can have come there since the run began, and be it that all others say so.
TEST_F(FurtherByWord, NoWordMovesAMemberBeyondWhatTheAgeOfTheRunAllows) {
  world.begin();
  EXPECT_FALSE(believes_many_more());
}

TEST_F(FurtherByWord, WhereNobodyKnowsTheAgeOfTheRunTheyAreBelieved) {
  world.start_all();
  identity::Roster roster = world.roster(1).roster();
  std::erase_if(roster.settings,
                [](const auto& setting) { return setting.first == identity::kRunIdKey; });
  world.publish(world.sign(roster));
  EXPECT_TRUE(believes_many_more());
}

// Donors whose links only look whole are given up as soon as a piece would be.
TEST_F(FurtherByWord, ADonorIsWaitedForAsLongAsForPieces) {
  run_until_it_believes_a_few_more();
  world.cut_off({2});
  const TimePoint asked = world.scheduler.now();
  world.run_until([&] { return !is_catching_up(); }, world.options.patience_max, "it gives up");
  EXPECT_LE(world.scheduler.now() - asked, 8 * world.options.patience_min);
}

// All begin from checkpoints, none of which is of the same exchange, and none remembers what it
// promised. Within 20 s they go on together, as fast as before.
TEST(AllReduceProtocol, AfterAPowerCutAllGoOnTogether) {
  for (const char* const algorithm : {"all-reduce", "diloco-all", "all-reduce:group=3"}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      PeerWorld world(testing::small_network_of_steps(100'000, "ring", 5, algorithm), seed);
      world.phase = [] { return 10ms; };
      world.options.checkpoint_every = 1s;
      world.begin();
      for (int cut = 0; cut < 2; ++cut) {
        world.run_for(from_seconds(world.rng.uniform(3, 6)));
        for (std::size_t i = 0; i < 5; ++i) world.kill(i);
        for (std::size_t i = 0; i < 5; ++i) {
          world.run_for(from_seconds(world.rng.uniform(0, 0.2)));
          world.start(i);
        }
        std::vector<Exchange> before;
        world.run_for(20s);
        for (std::size_t i = 0; i < 5; ++i) before.push_back(world.progress(i).exchange);
        world.run_for(10s);
        for (std::size_t i = 0; i < 5; ++i) {
          const std::string where =
              fmt::format("{} seed {} cut {} peer {}", algorithm, seed, cut, i);
          EXPECT_GT(world.progress(i).exchange, before[i] + 50) << where;
          EXPECT_FALSE(world.session(i).support().minority) << where;
        }
      }
    }
  }
}

// One does not come back. The others are most of the members, and need not wait for anybody.
TEST(AllReduceProtocol, AfterAPowerCutMostMembersGoOnAsFastAsBefore) {
  PeerWorld world(testing::small_network_of_steps(100'000, "ring", 5, "all-reduce"), 1);
  world.phase = [] { return 10ms; };
  world.options.checkpoint_every = 1s;
  world.begin();
  world.run_for(5s);
  for (std::size_t i = 0; i < 5; ++i) world.kill(i);
  for (std::size_t i = 0; i < 4; ++i) world.start(i);
  world.run_for(70s);  // the patience with the start
  const Exchange before = world.progress(0).exchange;
  world.run_for(10s);
  EXPECT_GT(world.progress(0).exchange, before + 100);
}

// --- without a quorum ----------------------------------------------------------------------------

// Its cable is pulled near the end, the others are slow: it ends the run alone, and first.
TEST(AllReduceProtocol, WhoFinishedApartTakesPartAgainWhereAMajorityStillTrains) {
  PeerWorld world(testing::small_network_of_steps(1000, "ring", 4, "all-reduce"), 3);
  Duration of_others = 100ms;
  for (std::size_t i = 0; i < 4; ++i) {
    world.peers[i]->training_time = world.peers[i]->mixing_time = [&world, &of_others, i] {
      const double mean = to_seconds(i == 3 ? Duration(100ms) : of_others);
      return from_seconds(mean * world.rng.uniform(0.5, 1.5));
    };
  }
  world.begin();
  world.run_to_exchange(0, 300);
  of_others = 1s;
  world.cut_off({3});
  world.run_until([&] { return world.peers[3]->shell().is_finished(); }, 1h, "it ends alone");
  const Exchange then = world.progress(0).exchange;
  ASSERT_LT(then, 700U);
  EXPECT_TRUE(world.session(3).support().minority);
  world.mend({3});
  world.run_to_exchange(0, then + 200);
  EXPECT_GT(world.peers[3]->columns_taken, 0U);
  EXPECT_FALSE(world.session(3).support().minority);
  EXPECT_EQ(world.progress(0).heard, 3U);
  world.run_to_end();
  EXPECT_EQ(world.model(3), world.model(0));
}

// Two of five are there, the others start two minutes later: in any training the two have not run
// through the exchanges meanwhile, and all go on together.
TEST(StartedWithoutAQuorum, NobodyRunsThroughTheExchangesBeforeTheOthersCome) {
  for (const char* algorithm : {"all-reduce", "dpsgd"}) {
    PeerWorld world(testing::small_network_of_steps(100'000, "complete", 5, algorithm), 1);
    world.phase = [&world] { return std::chrono::microseconds(500 + world.rng.below(1000)); };
    world.options.patience_max = 1s;
    start_some(world, {0, 1});
    world.run_for(2min);
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_GE(world.progress(i).exchange, 30U) << algorithm;
      EXPECT_LE(world.progress(i).exchange, 65U) << algorithm << world.status();
    }
    for (const std::size_t i : {2U, 3U, 4U}) {
      world.start(i);
      world.give(i, world.roster(1));
    }
    run_until_heard(world, {0, 1, 2, 3, 4}, 4);
  }
}

}  // namespace
}  // namespace starling::gossip
