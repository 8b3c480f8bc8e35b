// SPDX-License-Identifier: Apache-2.0
// The machine by hand: each event, the actions it must cause, and what it must refuse.
#include "core/client/client_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/client/client_machine_fixture.h"

namespace starling::client {
namespace {

TEST_F(ClientMachineTest, AWholeRound) {
  connect();
  hear(plan(5));
  serve_model(TaskId(5));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(as_text(did<Train>()->base.view()), as_text(base.view()));
  EXPECT_EQ(machine.activity(), ClientMachine::Activity::kTraining);
  feed(TrainingFinished{TaskId(5), update(5)});
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty()) << "offered before it is safe";
  feed(UpdateStored{TaskId(5), Result<void>()});
  ASSERT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
  hear(protocol::UpdateAccept{TaskId(5), 0, 250});
  EXPECT_EQ(sent<protocol::Chunk>().size(), 3U) << "100 + 100 + 50, within the credit";
  hear(protocol::Credit{TaskId(5), 600});
  EXPECT_EQ(sent<protocol::Chunk>().size(), 4U);
  hear(protocol::UpdateReceived{TaskId(5)});
  EXPECT_FALSE(did<ForgetUpdate>()) << "not durable at the coordinator yet";
  hear(protocol::RoundCommitted{TaskId(5), RunId(1), 1, {}});
  EXPECT_TRUE(did<ForgetUpdate>());
  EXPECT_EQ(machine.pending_updates(), 0U);
  EXPECT_EQ(machine.updates_counted(), 1U);
}

// The link's queue has room for a few windows of this client's own size.
TEST_F(ClientMachineTest, CreditForManyWindowsIsUsedAsTheLinkTakesThem) {
  base = SharedBytes::own(Bytes(2000));
  connect();
  train(5);
  hear(protocol::UpdateAccept{TaskId(5), 0, 2000});
  EXPECT_EQ(sent<protocol::Chunk>().size(), 5U) << "two windows of 250 bytes, in pieces of 100";
  std::uint64_t next = 500;
  while (next < 2000) {
    feed(Drained{});
    ASSERT_EQ(sent<protocol::Chunk>().size(), 5U);
    EXPECT_EQ(sent<protocol::Chunk>()[0].offset, next);
    next += 500;
  }
  feed(Drained{});
  EXPECT_TRUE(actions.empty());
}

TEST_F(ClientMachineTest, CreditIsOfItsConnection) {
  base = SharedBytes::own(Bytes(2000));
  connect();
  train(5);
  hear(protocol::UpdateAccept{TaskId(5), 0, 2000});
  feed(Disconnected{retry("connection-lost", "gone")});
  connect();
  feed(Drained{});
  EXPECT_TRUE(sent<protocol::Chunk>().empty());
}

TEST_F(ClientMachineTest, OffersAgainAfterEveryReconnectUntilSettled) {
  connect();
  train(5);
  hear(protocol::UpdateAccept{TaskId(5), 0, 250});
  for (int i = 0; i < 3; ++i) {
    feed(Disconnected{retry("connection-lost", "gone")});
    connect();
    EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
    hear(protocol::UpdateAccept{TaskId(5), 400, 600});
    ASSERT_EQ(sent<protocol::Chunk>().size(), 2U);
    EXPECT_EQ(sent<protocol::Chunk>()[0].offset, 400U) << "resumes where it broke off";
  }
  hear(protocol::TaskEnded{TaskId(5), "round-closed", "late"});
  EXPECT_TRUE(did<ForgetUpdate>());
  EXPECT_EQ(did<Say>()->line, "run 1 round 1: not counted (round-closed): late");
  EXPECT_EQ(machine.updates_counted(), 0U);
}

// A coordinator asks for what is open when a client comes back, and has its offer by then.
TEST_F(ClientMachineTest, AnUpdateThatIsAcceptedTwiceIsSentOnce) {
  connect();
  train(5);
  feed(Disconnected{retry("connection-lost", "gone")});
  connect();
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
  hear(plan(5));
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
  hear(protocol::UpdateAccept{TaskId(5), 100, 300});
  ASSERT_EQ(sent<protocol::Chunk>().size(), 2U);
  EXPECT_EQ(sent<protocol::Chunk>()[0].offset, 100U);
  hear(protocol::UpdateAccept{TaskId(5), 100, 400});
  ASSERT_EQ(sent<protocol::Chunk>().size(), 1U);
  EXPECT_EQ(sent<protocol::Chunk>()[0].offset, 300U) << "it goes on with what this allows";
  hear(plan(5));
  hear(protocol::UpdateAccept{TaskId(5), 0, 100});
  ASSERT_EQ(sent<protocol::Chunk>().size(), 1U);
  EXPECT_EQ(sent<protocol::Chunk>()[0].offset, 0U) << "what was received is lost";
}

TEST_F(ClientMachineTest, TheEndOfATaskThatIsNotItsOwnMeansNothing) {
  connect();
  train(5);
  hear(protocol::TaskEnded{TaskId(6), "model-unwanted", "of what a gossip peer handed in"});
  EXPECT_TRUE(actions.empty()) << "nothing is said or forgotten";
  EXPECT_EQ(machine.pending_updates(), 1U);
}

TEST_F(ClientMachineTest, ResumesADownloadWhereItBrokeOff) {
  connect();
  hear(plan(5));
  hear(protocol::Chunk{TaskId(5), 0}, base.slice(0, 100));
  feed(Disconnected{retry("connection-lost", "gone")});
  connect();
  ASSERT_EQ(sent<protocol::ModelRequest>().size(), 1U);
  EXPECT_EQ(sent<protocol::ModelRequest>()[0].offset, 100U);
  serve_model(TaskId(5));
  EXPECT_TRUE(did<Train>());
}

TEST_F(ClientMachineTest, TrainsThroughADisconnect) {
  connect();
  hear(plan(5));
  serve_model(TaskId(5));
  feed(Disconnected{retry("connection-lost", "gone")});
  feed(TrainingFinished{TaskId(5), update(5)});
  feed(UpdateStored{TaskId(5), Result<void>()});
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty());
  connect();
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
}

TEST_F(ClientMachineTest, AfterAReconnectItAsksWhetherItsTrainingIsStillWanted) {
  connect();
  hear(plan(5));
  serve_model(TaskId(5));
  ASSERT_EQ(machine.activity(), ClientMachine::Activity::kTraining);
  feed(Disconnected{retry("connection-lost", "gone")});
  connect();
  ASSERT_EQ(sent<protocol::ModelRequest>().size(), 1U);
  const protocol::ModelRequest request = sent<protocol::ModelRequest>()[0];
  EXPECT_EQ(request.task, TaskId(5));
  EXPECT_EQ(request.limit, request.offset) << "nothing is to be sent";
  hear(protocol::TaskEnded{TaskId(5), "round-closed", "the round closed without this update"});
  EXPECT_TRUE(did<CancelTraining>());
  EXPECT_EQ(machine.activity(), ClientMachine::Activity::kIdle);
}

TEST_F(ClientMachineTest, ALaterAttemptReusesTheFinishedUpdate) {
  connect();
  train(5);
  hear(plan(6));
  ASSERT_TRUE(did<StoreUpdate>());
  EXPECT_FALSE(did<Train>()) << "nobody retrains";
  EXPECT_EQ(did<StoreUpdate>()->update.head.task, TaskId(6));
  feed(UpdateStored{TaskId(6), Result<void>()});
  ASSERT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
  EXPECT_EQ(sent<protocol::UpdateOffer>()[0].head.task, TaskId(6));
  EXPECT_EQ(machine.pending_updates(), 1U);
}

TEST_F(ClientMachineTest, AFinishedUpdateAnswersAnAttemptThatReadsItsEncoding) {
  connect();
  auto sparse = plan(5);
  sparse.schema.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
  hear(sparse);
  serve_model(TaskId(5));
  feed(TrainingFinished{TaskId(5), update(5)});  // dense: it was not longer
  feed(UpdateStored{TaskId(5), Result<void>()});
  sparse.task = TaskId(6);
  hear(sparse);
  ASSERT_TRUE(did<StoreUpdate>());
  PendingUpdate update = did<StoreUpdate>()->update;
  EXPECT_EQ(update.head.vectors, plan(6).schema.vectors);
  feed(UpdateStored{TaskId(6), Result<void>()});
  hear(plan(7));
  EXPECT_TRUE(did<StoreUpdate>()) << "also one that asks for no sparse one";
}

TEST_F(ClientMachineTest, AFinishedSparseUpdateDoesNotAnswerAnAttemptThatWantsADenseOne) {
  connect();
  auto sparse = plan(5);
  sparse.schema.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
  hear(sparse);
  serve_model(TaskId(5));
  PendingUpdate done = update(5);
  done.head.vectors = sparse.schema.vectors;
  done.head.vectors[0].bytes = base.size();
  feed(TrainingFinished{TaskId(5), done});
  feed(UpdateStored{TaskId(5), Result<void>()});
  hear(plan(6));
  EXPECT_FALSE(did<StoreUpdate>());
  EXPECT_TRUE(did<Train>());
}

TEST_F(ClientMachineTest, ATrainingForASparseUpdateDoesNotAnswerAnAttemptThatWantsADenseOne) {
  connect();
  auto first = plan(5);
  first.schema.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
  hear(first);
  serve_model(TaskId(5));
  ASSERT_TRUE(did<Train>());
  auto again = plan(6);
  again.attempt = 2;
  hear(again);
  ASSERT_TRUE(did<Train>()) << "trained again, from the model that is held";
  EXPECT_EQ(did<Train>()->plan.task, TaskId(6));
}

// The operator went back to an earlier version, which closes the connection on what it cannot read.
class DowngradeTest : public ClientMachineTest {
 protected:
  PendingUpdate sparse_update(std::uint64_t task) {
    PendingUpdate done = update(task);
    done.head.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
    done.head.vectors[0].bytes = base.size();
    return done;
  }
};

TEST_F(DowngradeTest, NoSparseUpdateIsOfferedToACoordinatorOfAnEarlierVersion) {
  connect();
  auto sparse = plan(5);
  sparse.schema.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
  hear(sparse);
  serve_model(TaskId(5));
  feed(TrainingFinished{TaskId(5), sparse_update(5)});
  feed(UpdateStored{TaskId(5), Result<void>()});
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
  feed(Disconnected{retry("connection-lost", "x")});
  connect();
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U) << "the same version reads it";
  feed(Disconnected{retry("connection-lost", "x")});
  reads_sparse = false;
  connect();
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty());
  EXPECT_TRUE(did<ForgetUpdate>());
  hear(plan(5));
  EXPECT_TRUE(did<Train>()) << "the task is done again, dense";
  feed(TrainingFinished{TaskId(5), sparse_update(5)});  // as if it had begun before
  feed(UpdateStored{TaskId(5), Result<void>()});
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty());
  ASSERT_EQ(sent<protocol::TaskFailed>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskFailed>()[0].code, "coordinator-older");
  EXPECT_FALSE(sent<protocol::TaskFailed>()[0].permanent);
}

// It may have counted while the client was away, and the server then believes it to have the state.
TEST_F(DowngradeTest, AnUnreadableUpdateWithAStateIsAskedAbout) {
  connect();
  auto sparse = plan(5);
  sparse.schema.vectors[0].encoding = update::Encoding::kSparseFloat32Delta;
  hear(sparse);
  serve_model(TaskId(5));
  PendingUpdate made = sparse_update(5);
  made.state = std::make_shared<const strategy::State<float>>();
  feed(TrainingFinished{TaskId(5), made});
  feed(UpdateStored{TaskId(5), Result<void>()});
  feed(Disconnected{retry("connection-lost", "x")});
  reads_sparse = false;
  connect();
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty());
  EXPECT_FALSE(did<ForgetUpdate>());
  ASSERT_EQ(sent<protocol::ModelRequest>().size(), 1U);
  EXPECT_EQ(sent<protocol::ModelRequest>()[0].task, TaskId(5));
  hear(protocol::RoundCommitted{TaskId(5), sparse.run, sparse.round, {}});
  EXPECT_TRUE(did<KeepState>());
}

TEST_F(ClientMachineTest, ATaskWithAnEncodingOfALaterVersionIsRefusedByName) {
  const auto later = static_cast<update::Encoding>(77);
  const auto refused_with = [&](protocol::RoundPlan plan) {
    hear(plan);
    EXPECT_EQ(sent<protocol::TaskFailed>().size(), 1U);
    const protocol::TaskFailed failed = sent<protocol::TaskFailed>().at(0);
    EXPECT_TRUE(failed.permanent) << "the run's other tasks are no different";
    EXPECT_NE(failed.message.find("encoding 77"), std::string::npos) << failed.message;
    EXPECT_EQ(machine.link(), ClientMachine::Link::kUp);
    return failed.code;
  };
  connect();
  auto output = plan(5);
  output.schema.vectors[0].encoding = later;
  EXPECT_EQ(refused_with(output), "unknown-encoding");
  auto input = plan(6);
  input.inputs = {{"control", sha256(base.view()), base.size(), later}};
  EXPECT_EQ(refused_with(input), "unknown-encoding");
  train(7);
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U) << "other tasks are done";
}

TEST_F(ClientMachineTest, ALaterAttemptTakesOverTheTrainingUnderWay) {
  connect();
  hear(plan(5));
  serve_model(TaskId(5));
  hear(plan(6));
  EXPECT_FALSE(did<CancelTraining>());
  feed(TrainingFinished{TaskId(5), update(5)});
  ASSERT_TRUE(did<StoreUpdate>());
  EXPECT_EQ(did<StoreUpdate>()->update.head.task, TaskId(6));
}

TEST_F(ClientMachineTest, ANewRoundCancelsTheTrainingUnderWayAndAsksAboutTheOldUpdate) {
  connect();
  train(4);
  base = SharedBytes::own(Bytes(600, std::byte{8}));
  hear(plan(5, 2));
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U) << "what became of task 4?";
  serve_model(TaskId(5));
  base = SharedBytes::own(Bytes(600, std::byte{9}));
  hear(plan(6, 3));
  ASSERT_TRUE(did<CancelTraining>());
  EXPECT_EQ(did<CancelTraining>()->task, TaskId(5));
  feed(TrainingFinished{TaskId(5), update(5, 2)});
  EXPECT_TRUE(actions.empty()) << "the cancelled training counts for nothing";
}

// A restored coordinator may ask the task of a later round once more, from another model.
TEST_F(ClientMachineTest, AnUpdateFromAnotherBaseDoesNotAnswerTheSameTask) {
  connect();
  train(5, 3);
  protocol::RoundPlan again = plan(5, 3);
  again.base.sha256 = sha256(as_bytes("another model"));
  hear(again);
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty());
  EXPECT_TRUE(did<ForgetUpdate>());
  serve_model(TaskId(5));
  ASSERT_TRUE(did<Train>());
  EXPECT_EQ(did<Train>()->plan.base, again.base);
  hear(plan(5, 3));  // and once more, while it trains
  EXPECT_TRUE(did<CancelTraining>());
  serve_model(TaskId(5));
  PendingUpdate stale = update(5, 3);
  stale.head.base = again.base;
  feed(TrainingFinished{TaskId(5), stale});
  EXPECT_FALSE(did<StoreUpdate>());
  feed(TrainingFinished{TaskId(5), update(5, 3)});
  EXPECT_TRUE(did<StoreUpdate>());
}

// After a restore rounds are asked that the client has seen committed.
TEST_F(ClientMachineTest, AnOlderRoundThanItSawIsTrainedLikeAnyOther) {
  connect();
  train(7, 7);
  feed(Disconnected{retry("connection-lost", "gone")});
  connect();
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
  hear(protocol::TaskEnded{TaskId(7), "unknown-task", "no such task"});
  EXPECT_TRUE(did<ForgetUpdate>());
  EXPECT_EQ(machine.pending_updates(), 0U);
  train(5, 5);
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
}

TEST_F(ClientMachineTest, TheSameModelIsNotFetchedTwice) {
  connect();
  train(5);
  hear(protocol::TaskEnded{TaskId(5), "round-closed", ""});
  hear(plan(6));
  EXPECT_TRUE(did<Train>());
  EXPECT_TRUE(sent<protocol::ModelRequest>().empty());
}

TEST_F(ClientMachineTest, RepeatedPlansChangeNothing) {
  connect();
  hear(plan(5));
  hear(plan(5));
  EXPECT_EQ(sent<protocol::ModelRequest>().size(), 1U);
  serve_model(TaskId(5));
  hear(plan(5));
  EXPECT_TRUE(actions.empty());
  feed(TrainingFinished{TaskId(5), update(5)});
  hear(plan(5));
  EXPECT_TRUE(sent<protocol::UpdateOffer>().empty()) << "not stored yet";
  feed(UpdateStored{TaskId(5), Result<void>()});
  hear(plan(5));
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
}

TEST_F(ClientMachineTest, AFailedTrainingIsToldUntilItIsHeard) {
  connect();
  hear(plan(5));
  serve_model(TaskId(5));
  feed(Disconnected{retry("connection-lost", "gone")});
  feed(TrainingFinished{TaskId(5), rejected("diverged", "the loss is not finite")});
  connect();
  ASSERT_EQ(sent<protocol::TaskFailed>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskFailed>()[0].code, "diverged");
  hear(protocol::TaskEnded{TaskId(5), "diverged", "the loss is not finite"});
  EXPECT_EQ(did<Say>()->line, "run 1 round 1: not counted (diverged): the loss is not finite");
  feed(Disconnected{retry("connection-lost", "gone")});
  connect();
  EXPECT_TRUE(sent<protocol::TaskFailed>().empty());
}

TEST_F(ClientMachineTest, AFullDiskKeepsTheUpdateInMemory) {
  connect();
  hear(plan(5));
  serve_model(TaskId(5));
  feed(TrainingFinished{TaskId(5), update(5)});
  feed(UpdateStored{TaskId(5), overloaded("disk-full", "no space")});
  EXPECT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
}

TEST_F(ClientMachineTest, ABrokenDiskFailsTheTask) {
  connect();
  hear(plan(5));
  serve_model(TaskId(5));
  feed(TrainingFinished{TaskId(5), update(5)});
  feed(UpdateStored{TaskId(5), internal("io-error", "broken")});
  ASSERT_EQ(sent<protocol::TaskFailed>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskFailed>()[0].code, "io-error");
  EXPECT_EQ(machine.pending_updates(), 0U);
}

TEST_F(ClientMachineTest, RefusesATaskByItsPlanBeforeItFetchesAnything) {
  ClientOptions picky = options();
  picky.check = [](const protocol::RoundPlan& wanted, std::uint64_t) -> Result<void> {
    if (wanted.round == 1) return {};
    return unsupported("model-too-large", "no memory");
  };
  machine = ClientMachine(picky, Rng({.seed = 1}), {});
  connect();
  hear(plan(5, 2));
  ASSERT_EQ(sent<protocol::TaskFailed>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskFailed>()[0].code, "model-too-large");
  EXPECT_TRUE(sent<protocol::ModelRequest>().empty());
  hear(plan(6, 1));
  EXPECT_EQ(sent<protocol::ModelRequest>().size(), 1U);
}

TEST_F(ClientMachineTest, RefusesAModelBeyondItsLimit) {
  connect();
  for (const std::uint64_t bytes : {0ULL, 5000ULL, 601ULL, ~0ULL}) {
    protocol::RoundPlan big = plan(bytes % 97 + 1);
    big.model_bytes = bytes;
    hear(big);
    ASSERT_EQ(sent<protocol::TaskFailed>().size(), 1U) << bytes;
    EXPECT_EQ(sent<protocol::TaskFailed>()[0].code, "model-too-large");
    EXPECT_TRUE(sent<protocol::ModelRequest>().empty());
  }
}

TEST_F(ClientMachineTest, KeepsABoundedNumberOfUnsettledUpdates) {
  connect();
  for (std::uint64_t task = 1; task <= 5; ++task) {
    base = SharedBytes::own(Bytes(600, static_cast<std::byte>(task)));
    train(task, static_cast<Round>(task));
    EXPECT_LE(machine.pending_updates(), 2U);
  }
}

TEST_F(ClientMachineTest, PingsWhenSilentAndHangsUpWhenNothingIsHeard) {
  connect();
  const TimePoint connected = now;
  EXPECT_EQ(machine.next_deadline(), connected + 10s);
  for (int i = 1; i <= 5; ++i) {
    now = connected + i * 10s;
    feed(Tick{});
    EXPECT_EQ(sent<protocol::Ping>().size(), 1U) << i;
  }
  now = connected + 60s;
  feed(Tick{});
  ASSERT_TRUE(did<HangUp>());
  EXPECT_EQ(did<HangUp>()->reason.code(), "silent");
  EXPECT_EQ(machine.link(), ClientMachine::Link::kDown);
}

TEST_F(ClientMachineTest, AnswersPings) {
  connect();
  hear(protocol::Ping{7});
  ASSERT_EQ(sent<protocol::Pong>().size(), 1U);
  EXPECT_EQ(sent<protocol::Pong>()[0].nonce, 7U);
}

TEST_F(ClientMachineTest, GivesUpOnACoordinatorThatDoesNotGreet) {
  feed(Tick{});
  feed(Connected{});
  now = *machine.next_deadline();
  feed(Tick{});
  ASSERT_TRUE(did<HangUp>());
  EXPECT_EQ(did<HangUp>()->reason.code(), "deadline");
}

TEST_F(ClientMachineTest, HangsUpOnProtocolViolations) {
  const auto violates = [&](Message message, SharedBytes payload = {}) {
    connect();
    hear(plan(5));
    hear(std::move(message), std::move(payload));
    EXPECT_TRUE(did<HangUp>());
    feed(Disconnected{retry("connection-lost", "closed")});
    EXPECT_EQ(machine.link(), ClientMachine::Link::kDown);
  };
  violates(protocol::Hello{});
  violates(protocol::OperatorRequest{});
  violates(protocol::Bye{"draining", "back soon"});
  violates(protocol::Chunk{TaskId(5), 300}, base.slice(0, 100));
  violates(protocol::Chunk{TaskId(5), 0}, base);
}

TEST_F(ClientMachineTest, IgnoresWhatConcernsNoTaskOfIts) {
  connect();
  hear(protocol::Chunk{TaskId(9), 0}, base);
  EXPECT_TRUE(actions.empty());
  hear(protocol::Credit{TaskId(9), 100});
  EXPECT_TRUE(actions.empty());
  hear(protocol::UpdateAccept{TaskId(9), 0, 100});
  EXPECT_TRUE(actions.empty());
  hear(protocol::RoundCommitted{TaskId(9), RunId(1), 1, {}});
  EXPECT_EQ(machine.updates_counted(), 0U);
}

TEST_F(ClientMachineTest, ReconnectsForEverWithGrowingDelays) {
  Duration longest{};
  for (int i = 0; i < 50; ++i) {
    now = std::max(now, machine.next_deadline().value_or(now));
    feed(Tick{});
    ASSERT_TRUE(did<Dial>());
    feed(Disconnected{retry("cannot-connect", "refused")});
    longest = std::max(longest, *machine.next_deadline() - now);
    EXPECT_GE(*machine.next_deadline() - now, 200ms);
    EXPECT_LE(*machine.next_deadline() - now, 30s);
  }
  EXPECT_GT(longest, 10s);
}

TEST_F(ClientMachineTest, OnlyALinkThatLastedMakesTheDelaysSmallAgain) {
  const auto drop_after = [&](Duration lasted) {
    connect();
    now += lasted;
    feed(Disconnected{retry("closed", "replaced by another process")});
    return *machine.next_deadline() - now;
  };
  Duration longest{};
  for (int i = 0; i < 50; ++i) longest = std::max(longest, drop_after(100ms));
  EXPECT_GT(longest, 10s);
  EXPECT_LE(drop_after(10s), 400ms);
}

// A coordinator that is restarted every few seconds, while its rounds go on.
TEST_F(ClientMachineTest, AnUpdateThatWasReceivedMakesTheDelaysSmallAgain) {
  Duration longest{};
  for (std::uint64_t task = 1; task <= 50; ++task) {
    connect();
    train(task, static_cast<Round>(task));
    hear(protocol::UpdateReceived{TaskId(task)});
    hear(protocol::RoundCommitted{.task = TaskId(task), .run = RunId(1)});
    now += 2s;
    feed(Disconnected{retry("closed", "the coordinator went away")});
    longest = std::max(longest, *machine.next_deadline() - now);
  }
  EXPECT_LE(longest, 400ms);
  for (int i = 0; i < 50; ++i) {
    connect();
    hear(protocol::UpdateReceived{TaskId(7777)});
    feed(Disconnected{retry("closed", "x")});
    longest = std::max(longest, *machine.next_deadline() - now);
  }
  EXPECT_GT(longest, 10s) << "what is not its own is no sign of a good link";
}

TEST_F(ClientMachineTest, WhatAnEarlierProcessLeftIsOfferedFirst) {
  machine = ClientMachine(options(), Rng({.seed = 1}), {.pending = {update(3)}, .states = {}});
  connect();
  ASSERT_EQ(sent<protocol::UpdateOffer>().size(), 1U);
  EXPECT_EQ(sent<protocol::UpdateOffer>()[0].head.task, TaskId(3));
}

TEST_F(ClientMachineTest, StopsInEveryStateAndStaysStopped) {
  connect();
  hear(plan(5));
  serve_model(TaskId(5));
  feed(Stop{});
  EXPECT_TRUE(did<CancelTraining>());
  EXPECT_TRUE(did<HangUp>());
  EXPECT_EQ(sent<protocol::Bye>().size(), 1U);
  EXPECT_FALSE(machine.next_deadline());
  EXPECT_TRUE(feed(Tick{}).empty());
  EXPECT_TRUE(hear(plan(6)).empty());
}

}  // namespace
}  // namespace starling::client
