// SPDX-License-Identifier: Apache-2.0
// protocols that average over all: who is taken back, and how soon, without sockets or clocks.
#include "gossip/peer/all_reduce_protocol.h"

#include <gtest/gtest.h>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/fake_network.h"

namespace starling::gossip {
namespace {

using starling::testing::FakeNetwork;

NetOptions long_run(std::uint32_t nodes) {
  NetOptions options = testing::small_network("ring", nodes, "all-reduce");
  options.run.steps = 100'000;
  options.evaluate.every = options.run.steps;
  return options;
}

TrainingProgress progress(const FakeNetwork& net, Member member) {
  return net.peers[member]->training->progress();
}

void run_to_exchange(FakeNetwork& net, Member member, Exchange exchange) {
  net.run_until([&] { return progress(net, member).exchange >= exchange; });
}

void run_until_heard(FakeNetwork& net, const std::vector<Member>& members, std::uint32_t heard) {
  net.run_until([&] {
    return std::ranges::all_of(members, [&](Member m) { return progress(net, m).heard == heard; });
  });
}

TEST(AllReduceProtocol, WhoWasCalledDeadWhileItsLinkWasWholeIsTakenBack) {
  FakeNetwork net(long_run(3), 1);
  for (Member member : {0U, 1U, 2U}) net.start(member, member + 1);
  net.connect_all();
  run_until_heard(net, {0, 1, 2}, 2);
  for (Member member : {0U, 1U}) net.peers[member]->training->reach(2, false);
  run_until_heard(net, {0, 1}, 1);
  for (Member member : {0U, 1U}) net.peers[member]->training->reach(2, true);
  run_until_heard(net, {0, 1, 2}, 2);
}

TEST(AllReduceProtocol, ThatSomebodyLivesDoesNotMakeALink) {
  FakeNetwork net(long_run(3), 1);
  for (Member member : {0U, 1U, 2U}) net.start(member, member + 1);
  net.connect_all();
  run_until_heard(net, {0, 1, 2}, 2);
  net.cut(0, 2);
  net.cut(1, 2);
  for (Member member : {0U, 1U}) net.peers[member]->training->reach(2, true);
  const Exchange exchange = progress(net, 0).exchange;
  run_to_exchange(net, 0, exchange + 20);
  EXPECT_EQ(progress(net, 0).heard, 1U);
}

// The lowest gathers, and of the fourth nobody ever hears.
TEST(AllReduceProtocol, WhoLostAllIsBackBeforeItsPatienceWithTheStartIsOver) {
  for (const bool kept : {false, true}) {
    FakeNetwork net(long_run(4), 1);
    net.patience.start = std::chrono::seconds(60);
    for (Member member : {0U, 1U, 2U}) net.start(member, member + 1);
    net.connect_all();
    run_to_exchange(net, 1, 20);
    net.stop(0);
    run_to_exchange(net, 1, 40);
    ProtocolStart start;
    const auto initial = net.run.initial.values();
    start.model.assign(initial.begin(), initial.end());
    // With a checkpoint of where the others are, nothing shows that the network is under way.
    if (kept) start.exchange = progress(net, 1).exchange;
    const TimePoint back = net.now;
    net.start(0, 7, start);
    net.connect_all();
    run_until_heard(net, {0, 1, 2}, 2);
    EXPECT_LT(net.now - back, std::chrono::seconds(5)) << kept;
  }
}

// All begin before there is any link, and two have theirs long after the third has its.
TEST(AllReduceProtocol, WhatIsSentBeforeALinkIsThereIsNotLost) {
  FakeNetwork net(long_run(3), 1);
  net.patience.start = std::chrono::seconds(60);
  for (Member member : {0U, 1U, 2U}) net.start(member, member + 1);
  net.at(TimePoint{} + std::chrono::milliseconds(300), [&net] {
    net.connect(0, 1);
    net.connect(0, 2);
  });
  net.at(TimePoint{} + std::chrono::milliseconds(600), [&net] { net.connect(1, 2); });
  run_to_exchange(net, 0, 1);
  EXPECT_LT(net.now - TimePoint{}, std::chrono::milliseconds(700));
  EXPECT_EQ(progress(net, 0).heard, 2U);
}

// A change of epoch: who would gather was not there in the one before.
TEST(AllReduceProtocol, WhoIsKnownToBeAwayIsNotWaitedForUntilItComes) {
  FakeNetwork net(long_run(3), 1);
  net.patience.min = std::chrono::seconds(10);
  net.absent = {0};
  const auto initial = net.run.initial.values();
  const ProtocolStart start{.exchange = 5, .model = {initial.begin(), initial.end()}};
  for (Member member : {1U, 2U}) net.start(member, member + 1, start);
  net.connect_all();
  run_to_exchange(net, 1, 20);
  EXPECT_LT(net.now - TimePoint{}, net.patience.min);
  net.absent = {};
  net.start(0, 7);
  net.connect_all();
  run_until_heard(net, {0, 1, 2}, 2);
}

// It has nobody to train with, and each of its exchanges would last as long as a start.
TEST(AllReduceProtocol, WhoJoinsWhenAllHaveFinishedTakesTheirModel) {
  FakeNetwork net(long_run(3), 1);
  net.patience.start = std::chrono::seconds(60);
  const Exchange last = net.run.options.schedule().mixings_until(net.run.options.run.steps);
  const std::vector<float> trained(net.run.initial.size(), 0.25F);
  for (Member member : {0U, 1U}) {
    net.start(member, member + 1, ProtocolStart{.exchange = last, .model = trained});
  }
  net.start(2, 3);
  net.connect_all();
  net.run_until([&] { return net.peers[2]->finishes == 1; });
  EXPECT_LT(net.now - TimePoint{}, std::chrono::seconds(2));
  EXPECT_EQ(net.peers[2]->copies, 1);
  const auto model = net.peers[2]->training->model();
  ASSERT_TRUE(model);
  EXPECT_EQ(std::vector<float>(model->begin(), model->end()), trained);
}

protocol::ReduceNote over(Progress next, Member by) {
  return {.kind = protocol::ReduceNote::Kind::kAhead,
          .epoch = 1,
          .exchange = next.exchange,
          .members = {by},
          .backed = next.backed};
}

// Two members say that they are further, and their model shows that they are not.
TEST(AllReduceProtocol, AModelThatIsNoFurtherIsNotTakenForOneThatIs) {
  FakeNetwork net(long_run(3), 1);
  for (Member member : {0U, 1U, 2U}) net.start(member, member + 1);
  net.connect_all();
  run_to_exchange(net, 2, 40);
  net.run_until([&] { return progress(net, 2).state == "waiting"; });
  TrainingProtocol& training = *net.peers[2]->training;
  const Exchange exchange = progress(net, 2).exchange;
  const Progress claimed{.backed = exchange + 6, .exchange = exchange + 6};
  for (Member member : {0U, 1U}) training.take(member, over(claimed, member));
  ASSERT_EQ(progress(net, 2).state, "catching-up");
  net.run_until([&] { return progress(net, 2).state != "catching-up"; });
  EXPECT_EQ(net.peers[2]->copies, 1);
  EXPECT_LE(progress(net, 2).exchange, progress(net, 0).exchange);
  run_until_heard(net, {0, 1, 2}, 2);
  EXPECT_EQ(net.peers[2]->copies, 1);
}

// Nobody can have come there since the run began, and be it that all others say so.
TEST(AllReduceProtocol, NoWordMovesAMemberBeyondWhatTheAgeOfTheRunAllows) {
  for (const bool knows_age : {true, false}) {
    FakeNetwork net(long_run(3), 1);
    for (Member member : {0U, 1U}) net.start(member, member + 1);
    const auto initial = net.run.initial.values();
    ProtocolStart start{.model = {initial.begin(), initial.end()}};
    if (knows_age) start.run_age = std::chrono::seconds(1);
    net.start(2, 3, start);
    net.connect_all();
    run_to_exchange(net, 2, 40);
    net.run_until([&] { return progress(net, 2).state == "waiting"; });
    for (Member member : {0U, 1U}) {
      net.peers[2]->training->take(member, over({.backed = 90'000, .exchange = 90'000}, member));
    }
    EXPECT_EQ(net.peers[2]->copies, knows_age ? 0 : 1);
    run_until_heard(net, {0, 1, 2}, 2);
  }
}

// A donor whose link only looks whole is given up as soon as a piece would be.
TEST(AllReduceProtocol, ADonorIsWaitedForAsLongAsForPieces) {
  FakeNetwork net(long_run(3), 1);
  net.patience = {};
  for (Member member : {0U, 1U, 2U}) net.start(member, member + 1);
  net.connect_all();
  run_to_exchange(net, 2, 40);
  net.run_until([&] { return progress(net, 2).state == "waiting"; });
  const Exchange further = progress(net, 2).exchange + 6;
  for (Member member : {0U, 1U}) {
    net.peers[2]->training->take(member, over({.backed = further, .exchange = further}, member));
  }
  ASSERT_TRUE(net.peers[2]->copy_patience);
  EXPECT_LE(*net.peers[2]->copy_patience, 8 * net.patience.min);
}

// Its cable is pulled near the end, the others are slow: it ends the run alone, and first.
TEST(AllReduceProtocol, WhoFinishedApartTakesPartAgainWhereAMajorityStillTrains) {
  NetOptions options = long_run(4);
  options.run.steps = options.evaluate.every = 1'000;
  FakeNetwork net(options, 3);
  net.patience = {};
  for (Member member = 0; member < 4; ++member) {
    net.peers[member]->phase = std::chrono::milliseconds(100);
    net.start(member, member + 1);
  }
  net.connect_all();
  run_to_exchange(net, 0, 300);
  for (const Member member : {0U, 1U, 2U}) {
    net.peers[member]->phase = std::chrono::seconds(1);
  }
  net.pull({3}, std::chrono::minutes(4));
  net.run_until([&] { return net.peers[3]->finishes == 1; });
  const Exchange then = progress(net, 0).exchange;
  ASSERT_LT(then, 700U);
  EXPECT_TRUE(net.peers[3]->training->support().minority);
  net.run_until([&] { return progress(net, 0).exchange >= then + 200; });
  EXPECT_GE(net.peers[3]->copies, 1);
  EXPECT_FALSE(net.peers[3]->training->support().minority);
  EXPECT_EQ(progress(net, 0).heard, 3U);
  net.run_until([&] { return net.peers[3]->finishes == 2 && net.peers[0]->finishes == 1; });
  EXPECT_EQ(net.peers[3]->mixed, net.peers[0]->mixed);
}

// Two of five are there, the others start a minute later: in any training the two have not run
// through the exchanges meanwhile, and all go on together.
TEST(StartedWithoutAQuorum, NobodyRunsThroughTheExchangesBeforeTheOthersCome) {
  for (const char* algorithm : {"all-reduce", "dpsgd"}) {
    NetOptions options = testing::small_network_of_steps(100'000, "complete", 5, algorithm);
    FakeNetwork net(options, 1);
    for (const auto& peer : net.peers) peer->phase = std::chrono::milliseconds(1);
    for (Member member : {0U, 1U}) net.start(member, member + 1);
    net.connect_all();
    for (Member member : {0U, 1U}) {
      for (Member away : {2U, 3U, 4U}) net.peers[member]->training->reach(away, false);
    }
    net.at(net.now + std::chrono::minutes(1), [] {});
    const TimePoint others_come = net.now + std::chrono::minutes(1);
    net.run_until([&] { return net.now >= others_come; });
    for (Member member : {0U, 1U}) {
      EXPECT_GE(progress(net, member).exchange, 30U) << algorithm;
      EXPECT_LE(progress(net, member).exchange, 65U) << algorithm;
    }
    for (Member member : {2U, 3U, 4U}) net.start(member, member + 1);
    for (Member member : {0U, 1U}) {
      for (Member back : {2U, 3U, 4U}) net.peers[member]->training->reach(back, true);
    }
    net.connect_all();
    run_until_heard(net, {0, 1, 2, 3, 4}, 4);
  }
}

}  // namespace
}  // namespace starling::gossip
