// SPDX-License-Identifier: Apache-2.0
// The machine by hand: sessions, rounds and what hostile or late messages may not change.
#include "coordinator/machine/coordinator_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/coordinator_machine_fixture.h"

namespace starling::coordinator {
namespace {

TEST_F(CoordinatorMachineTest, AWholeRunOfTwoRounds) {
  open_round();
  EXPECT_EQ(plan_a.round, 1U);
  EXPECT_EQ(plan_a.model_bytes, model->size() * 4);
  hear(1, protocol::ModelRequest{plan_a.task, 0, 25});
  ASSERT_EQ(did<Send>().size(), 2U) << "20 + 5 of 40 bytes within the credit";
  EXPECT_EQ(did<Send>()[1].envelope.payload.size(), 5U);
  hear(1, protocol::Credit{plan_a.task, 1000});
  ASSERT_EQ(did<Send>().size(), 1U);
  EXPECT_EQ(did<Send>()[0].envelope.payload.size(), 15U);
  EXPECT_NO_FATAL_FAILURE(upload(1, plan_a));
  feed(UploadSummed{plan_a.task, {}});
  EXPECT_EQ(sent<protocol::UpdateReceived>().size(), 1U);
  EXPECT_TRUE(did<CommitRound>().empty()) << "two updates are wanted";
  EXPECT_NO_FATAL_FAILURE(upload(2, plan_b));
  feed(UploadSummed{plan_b.task, {}});
  ASSERT_EQ(did<CommitRound>().size(), 1U);
  EXPECT_TRUE(sent<protocol::RoundCommitted>().empty()) << "not durable yet";
  commit();
  EXPECT_EQ(sent<protocol::RoundCommitted>().size(), 2U);
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 2U) << "the next round is pushed at once";
  EXPECT_EQ(plans[0].second.base, version);
  EXPECT_NE(plans[0].second.task, plan_a.task);
  upload(1, plans[0].second);
  feed(UploadSummed{plans[0].second.task, {}});
  upload(2, plans[1].second);
  feed(UploadSummed{plans[1].second.task, {}});
  commit();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].state, FinishRun::State::kCompleted);
  EXPECT_EQ(machine.runs_held(), 0U);
}

// Which would let a device that is left out for the shape of its data be a member again.
TEST_F(CoordinatorMachineTest, AGreetingThatSaysNothingLeavesWhatTheStoreKnows) {
  join("a", 1);
  ASSERT_EQ(did<ClientSeen>().size(), 1U);
  EXPECT_TRUE(did<ClientSeen>()[0].greeting);
  feed(SessionOpened{SessionId(2), "a"});
  hear(2, protocol::Hello{.software = "a preflight"});
  EXPECT_FALSE(did<ClientSeen>().empty());
  for (const ClientSeen& seen : did<ClientSeen>()) EXPECT_FALSE(seen.greeting);
}

TEST_F(CoordinatorMachineTest, AWeightAboveTheRowsThatWereAnnouncedIsRefused) {
  open_round();
  update::ContributionHead bold = head(plan_a);
  bold.weight = 11;  // join() announces 10 rows
  hear(1, protocol::UpdateOffer{bold});
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "weight-above-rows");
  EXPECT_TRUE(did<OpenUpload>().empty());
  EXPECT_NO_FATAL_FAILURE(upload(2, plan_b));
}

// FedNova multiplies by the local steps that clients say they made.
TEST_F(CoordinatorMachineTest, StepsAboveWhatTheRowsGiveAreRefused) {
  Job job = context.job;
  job.training.strategy.name = "fednova";
  job.training.train.optimizer = "momentum";
  job.training.train.momentum = 0.5;
  job.training.train.batch_size = 1;
  job.aggregation.weight_ratio_max = 2;
  context = prepare_run(job, nullptr).value();
  rows_of_a = 1000;  // b announces 10
  can_do = context.abilities();
  open_round();
  const auto offer_steps = [&](std::uint64_t session, const protocol::RoundPlan& plan,
                               double steps) {
    update::ContributionHead claims = head(plan);
    claims.scalars["effective_steps"] = steps;
    hear(session, protocol::UpdateOffer{claims});
  };
  offer_steps(2, plan_b, 20.1);  // 10 steps of at most 1 / (1 - 0.5)
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "bad-scalars");
  EXPECT_TRUE(did<OpenUpload>().empty());
  offer_steps(1, plan_a, 1900);
  ASSERT_EQ(did<OpenUpload>().size(), 1U);
  feed(UploadOpened{plan_a.task, head(plan_a).payload_bytes});
  ASSERT_EQ(did<SumUpload>().size(), 1U);
  EXPECT_EQ(did<SumUpload>()[0].head.scalars.at("effective_steps"), 40)
      << "as of twice the median rows";
}

TEST_F(CoordinatorMachineTest, AWeightCountsUpToTheRunsBound) {
  context.job.aggregation.weight_max = 4;
  open_round();
  EXPECT_NO_FATAL_FAILURE(upload(1, plan_a));
  EXPECT_EQ(did<SumUpload>()[0].head.weight, 4);
  feed(UploadSummed{plan_a.task, 1.0});
  EXPECT_NO_FATAL_FAILURE(upload(2, plan_b));
  feed(UploadSummed{plan_b.task, 1.0});
  ASSERT_EQ(did<CommitRound>().size(), 1U);
  EXPECT_EQ(did<CommitRound>()[0].summary.contributors[0].weight, 4) << "as it is recorded";
}

TEST_F(CoordinatorMachineTest, RowsOfAClientThatCountsAsOneAreNotBoundedByTheSums) {
  context.job.aggregation.weight = "uniform";
  context.job.round.weight_max = 1;
  open_round();
  update::ContributionHead large = head(plan_a);
  large.weight = 10;
  hear(1, protocol::UpdateOffer{large});
  EXPECT_TRUE(sent<protocol::TaskEnded>().empty());
  EXPECT_EQ(did<OpenUpload>().size(), 1U);
}

// However many clients fetch a model, the store is written to some 32 times.
TEST_F(CoordinatorMachineTest, TrafficOfALargeCohortIsRecordedOnceInSeveralModels) {
  context.job.round.cohort = 64;
  context.job.round.wait_for = 64;
  submit();
  for (std::uint64_t i = 1; i <= 64; ++i) join("client-" + std::to_string(i), i);
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 64U);
  for (std::uint64_t sent_models = 1; sent_models <= 64; ++sent_models) {
    const auto& [session, plan] = plans[sent_models - 1];
    hear(session.value(), protocol::ModelRequest{plan.task, 0, 1000});
    ASSERT_EQ(did<RecordTraffic>().size(), sent_models % 2 == 0 ? 1U : 0U) << sent_models;
    if (sent_models % 2 > 0) continue;
    EXPECT_EQ(did<RecordTraffic>()[0].bytes_out, sent_models * model->size() * 4)
        << "with what was left out";
  }
}

// Of a client that asks for the end of its model again and again, one is recorded.
TEST_F(CoordinatorMachineTest, TrafficIsRecordedOnceAModel) {
  open_round();
  hear(1, protocol::ModelRequest{plan_a.task, 0, 1000});
  EXPECT_EQ(did<RecordTraffic>().size(), 1U);
  for (int i = 0; i < 5; ++i) {
    hear(1, protocol::ModelRequest{plan_a.task, plan_a.model_bytes - 4, 1000});
    EXPECT_EQ(sent<protocol::Chunk>().size(), 1U);
    EXPECT_TRUE(did<RecordTraffic>().empty());
  }
}

// Whatever rows one of them announces.
TEST_F(CoordinatorMachineTest, AWeightCountsUpToAMultipleOfTheMedianRowsOfItsRound) {
  rows_of_a = 1'000'000;
  open_round();
  EXPECT_EQ(offer(plan_a, 1'000'000), "a: its weight 1000000 is lowered to 100");
  EXPECT_EQ(offer(plan_a, 1'000'000), "") << "said once";
}

TEST_F(CoordinatorMachineTest, WhoAnnouncedNoRowsCountsAsTheMedian) {
  rows_of_a = 0;
  open_round();
  EXPECT_EQ(offer(plan_a, 1'000'000), "a: its weight 1000000 is lowered to 10");
}

TEST_F(CoordinatorMachineTest, ARoundThatIsResumedBoundsWeightsAsBefore) {
  RunStart start = start_of(1);
  start.open =
      OpenAttempt{.round = 1, .attempt = 1, .participants = {{"a", TaskId(5)}, {"b", TaskId(6)}}};
  feed(ClientAdmitted{"a", true, {.rows = 1'000'000}});
  feed(ClientAdmitted{"b", true, {.rows = 10}});
  feed(RunSubmitted{start});
  feed(SessionOpened{SessionId(1), "a"});
  hear(1, protocol::Hello{.rows = 1'000'000});
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  EXPECT_EQ(offer(sent<protocol::RoundPlan>()[0].second, 1'000'000),
            "a: its weight 1000000 is lowered to 100")
      << "b is not back yet";
}

TEST_F(CoordinatorMachineTest, TheNormBoundFollowsFromTheCommittedRounds) {
  context.job.aggregation.norm_max = "10x";
  open_round();
  EXPECT_EQ(did<BeginRound>()[0].norm_max, std::nullopt) << "nothing to compare with yet";
  EXPECT_NO_FATAL_FAILURE(upload(1, plan_a));
  feed(UploadSummed{plan_a.task, 3.0});
  EXPECT_NO_FATAL_FAILURE(upload(2, plan_b));
  feed(UploadSummed{plan_b.task, 2.0});
  const RoundSummary summary = did<CommitRound>().at(0).summary;
  commit();
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].norm_max, 20);
  // ... and for a coordinator that starts from the record of round 1.
  const store::RoundRecord record{.key = {RunId(1), 1, 1},
                                  .state = store::RoundState::kCommitted,
                                  .result = to_record(summary, nullptr)};
  EXPECT_EQ(start_of(1, {record}).norms, (RecentNorms{{3, 2}}));
}

TEST_F(CoordinatorMachineTest, WaitsForTheClientsThatTheJobAwaits) {
  submit();
  join("a", 1);
  EXPECT_TRUE(did<BeginRound>().empty());
  join("b", 2);
  EXPECT_EQ(did<BeginRound>().size(), 1U);
}

TEST_F(CoordinatorMachineTest, GreetsOnceAndClosesWhoSpeaksFirst) {
  feed(ClientAdmitted{"a"});
  feed(SessionOpened{SessionId(1), "a"});
  hear(1, protocol::Ping{});
  EXPECT_EQ(closed_because(), "bad-message");
  feed(SessionOpened{SessionId(2), "a"});
  hear(2, protocol::Hello{.version_min = 7, .version_max = 9});
  EXPECT_EQ(closed_because(), "version");
  feed(SessionOpened{SessionId(3), "a"});
  now += 10s;
  feed(Tick{});
  EXPECT_EQ(closed_because(), "deadline");
  feed(SessionOpened{SessionId(4), "stranger"});
  hear(4, protocol::Hello{});
  EXPECT_EQ(closed_because(), "certificate-revoked");
  EXPECT_EQ(machine.clients().count_connected(), 0U);
}

TEST_F(CoordinatorMachineTest, ClosesSilentSessionsAndAnswersPings) {
  join("a", 1);
  EXPECT_LE(*machine.next_deadline(), now + 60s);
  now += 59s;
  hear(1, protocol::Ping{3});
  EXPECT_EQ(sent<protocol::Pong>()[0].second.nonce, 3U);
  now += 60s;
  feed(Tick{});
  EXPECT_EQ(closed_because(), "silent");
}

TEST_F(CoordinatorMachineTest, WhatIsForOthersIsHeardToo) {
  join("a", 1);
  now += 40s;
  feed(SessionHeard{SessionId(1)});
  feed(SessionHeard{SessionId(7)});  // closed meanwhile
  now += 40s;
  feed(Tick{});
  EXPECT_TRUE(machine.clients().connected("a"));
  now += 60s;
  feed(Tick{});
  EXPECT_EQ(closed_because(), "silent");
}

TEST_F(CoordinatorMachineTest, ASecondConnectionOfAClientReplacesTheFirst) {
  open_round();
  feed(SessionOpened{SessionId(3), "a"});
  hear(3, protocol::Hello{});
  EXPECT_EQ(closed_because(), "replaced");
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U) << "its task is told again";
  EXPECT_EQ(sent<protocol::RoundPlan>()[0].second.task, plan_a.task);
  feed(SessionClosed{SessionId(1)});
  EXPECT_TRUE(machine.clients().connected("a")) << "the old connection's end concerns nobody";
}

TEST_F(CoordinatorMachineTest, ATaskOfAnotherClientIsNobodysBusiness) {
  open_round();
  hear(2, protocol::UpdateOffer{head(plan_a)});
  ASSERT_EQ(did<LookUpTask>().size(), 1U) << "looked up under the sender's own name";
  EXPECT_EQ(did<LookUpTask>()[0].client, "b");
  EXPECT_TRUE(did<OpenUpload>().empty());
  hear(2, protocol::ModelRequest{plan_a.task, 0, 100});
  EXPECT_TRUE(sent<protocol::Chunk>().empty());
  hear(2, protocol::TaskFailed{plan_a.task, "x", "x"});
  EXPECT_EQ(phase()->tasks().at(plan_a.task).state, RoundMachine::State::kAsked);
  hear(2, protocol::Chunk{plan_a.task, 0}, SharedBytes::own(Bytes(20)));
  EXPECT_TRUE(did<WriteUpload>().empty());
}

TEST_F(CoordinatorMachineTest, AnUpdateOfAnotherRunOfTheSameNumberDoesNotCount) {
  version.run_key = 77;
  open_round();
  auto stale = head(plan_a);
  stale.base.run_key = 66;
  hear(1, protocol::UpdateOffer{stale});
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "wrong-base");
  auto of_an_earlier_client = head(plan_b);
  of_an_earlier_client.base.run_key = 0;
  hear(2, protocol::UpdateOffer{of_an_earlier_client});
  EXPECT_EQ(did<OpenUpload>().size(), 1U);
}

TEST_F(CoordinatorMachineTest, APlanSaysWhichTaskOfTheClientCountedLast) {
  open_round();
  EXPECT_EQ(plan_a.last_counted, protocol::CountedTask());
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, 0.5});
  hear(2, protocol::TaskFailed{plan_b.task, "x", "x"});
  ASSERT_EQ(did<CommitRound>().size(), 1U);
  commit();
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[0].second.last_counted, (protocol::CountedTask{plan_a.task, 1}));
  EXPECT_EQ(plans[1].second.last_counted, protocol::CountedTask())
      << "its update of round 1 did not count";
}

TEST_F(CoordinatorMachineTest, RefusesHeadsByName) {
  open_round();
  auto bad = head(plan_a);
  bad.base.sha256 = sha256(as_bytes("other"));
  hear(1, protocol::UpdateOffer{bad});
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "wrong-base");
  auto heavy = head(plan_b);
  heavy.weight = 1e12;
  hear(2, protocol::UpdateOffer{heavy});
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "weight-out-of-range");
  ASSERT_EQ(did<AbandonRound>().size(), 1U) << "both have failed: no reason to wait";
  EXPECT_EQ(did<AbandonRound>()[0].summary.failures[0].code, "wrong-base");
}

TEST_F(CoordinatorMachineTest, MoreBytesThanGrantedCloseTheSession) {
  open_round();
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, 0});
  hear(1, protocol::Chunk{plan_a.task, 0}, SharedBytes::own(Bytes(60)));
  EXPECT_EQ(closed_because(), "bad-chunk");
}

TEST_F(CoordinatorMachineTest, APieceOfAnUpdateThatNamesAnInputClosesTheSession) {
  open_round();
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, 0});
  hear(1, protocol::Chunk{.task = plan_a.task, .input = 65535}, SharedBytes::own(Bytes(20)));
  EXPECT_EQ(closed_because(), "bad-message");
}

TEST_F(CoordinatorMachineTest, ChunksWithoutAcceptedOfferChangeNothing) {
  open_round();
  hear(1, protocol::Chunk{plan_a.task, 0}, SharedBytes::own(Bytes(20)));
  EXPECT_TRUE(actions.empty());
}

TEST_F(CoordinatorMachineTest, AFullSpoolGivesNoCreditAndTriesAgain) {
  open_round();
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, overloaded("spool-full", "no room")});
  EXPECT_TRUE(sent<protocol::UpdateAccept>().empty());
  now += 200ms;
  EXPECT_LE(*machine.next_deadline(), now);
  feed(Tick{});
  ASSERT_EQ(did<OpenUpload>().size(), 1U);
  feed(UploadOpened{plan_a.task, 0});
  EXPECT_EQ(sent<protocol::UpdateAccept>().size(), 1U);
}

TEST_F(CoordinatorMachineTest, AnInterruptedUploadResumesWhereItWas) {
  open_round();
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, 0});
  hear(1, protocol::Chunk{plan_a.task, 0}, SharedBytes::own(Bytes(20)));
  feed(SessionClosed{SessionId(1)});
  EXPECT_TRUE(did<DropUpload>().empty()) << "what arrived is kept";
  feed(SessionOpened{SessionId(5), "a"});
  hear(5, protocol::Hello{});
  hear(5, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, 20});
  ASSERT_EQ(sent<protocol::UpdateAccept>().size(), 1U);
  EXPECT_EQ(sent<protocol::UpdateAccept>()[0].second.offset, 20U);
  hear(5, protocol::Chunk{plan_a.task, 20}, SharedBytes::own(Bytes(20)));
  EXPECT_EQ(did<SumUpload>().size(), 1U);
}

TEST_F(CoordinatorMachineTest, AnUploadIsTiedToItsRunAndContent) {
  open_round();
  update::ContributionHead offered = head(plan_a);
  offered.payload_checksum = 77;
  hear(1, protocol::UpdateOffer{offered});
  ASSERT_EQ(did<OpenUpload>().size(), 1U);
  EXPECT_EQ(did<OpenUpload>()[0].run, RunId(1));
  EXPECT_EQ(did<OpenUpload>()[0].bytes, offered.payload_bytes);
  EXPECT_EQ(did<OpenUpload>()[0].checksum, 77U);
}

TEST_F(CoordinatorMachineTest, AnUploadThatIsThereAlreadyIsSummedWithoutAnyChunk) {
  open_round();
  const std::uint64_t whole = head(plan_a).payload_bytes;
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, whole});
  EXPECT_TRUE(sent<protocol::UpdateAccept>().empty());
  ASSERT_EQ(did<SumUpload>().size(), 1U);
  EXPECT_EQ(did<SumUpload>()[0].head.task, plan_a.task);
  feed(UploadSummed{plan_a.task, 1.0});
  EXPECT_EQ(sent<protocol::UpdateReceived>().size(), 1U);
  EXPECT_EQ(phase()->tasks().at(plan_a.task).bytes_in, 0U) << "nothing was sent";
}

TEST_F(CoordinatorMachineTest, AnUploadDamagedBeforeARestartIsSentAgain) {
  open_round();
  const std::uint64_t whole = head(plan_a).payload_bytes;
  const Error mismatch = rejected("checksum-mismatch", "damaged");
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, whole});
  ASSERT_EQ(did<SumUpload>().size(), 1U);
  feed(UploadSummed{plan_a.task, mismatch, true});
  EXPECT_TRUE(sent<protocol::TaskEnded>().empty());
  ASSERT_EQ(did<Say>().size(), 1U);
  EXPECT_THAT(did<Say>()[0].line,
              ::testing::HasSubstr("the received update of a cannot be read back"));
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U) << "to which a finished update is offered";
  EXPECT_EQ(sent<protocol::RoundPlan>()[0].second.task, plan_a.task);
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, mismatch});
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U) << "this one was damaged by its client";
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "checksum-mismatch");
}

TEST_F(CoordinatorMachineTest, AnUploadThatIsDamagedAgainFailsWithoutBlame) {
  open_round();
  const Error unreadable = retry("upload-unreadable", "a bad sector");
  for (int time = 0; time < 2; ++time) {
    EXPECT_TRUE(sent<protocol::TaskEnded>().empty());
    upload(1, plan_a);
    feed(UploadSummed{plan_a.task, unreadable, true});
  }
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "io-error");
  EXPECT_TRUE(sent<protocol::RoundPlan>().empty());
  EXPECT_EQ(phase()->tasks().at(plan_a.task).state, RoundMachine::State::kFailed);
}

TEST_F(CoordinatorMachineTest, AClientThatIsAwayWhenItsUploadIsFoundDamagedIsAwaited) {
  open_round();
  hear(1, protocol::UpdateOffer{head(plan_a)});
  feed(UploadOpened{plan_a.task, head(plan_a).payload_bytes});
  feed(SessionClosed{SessionId(1)});
  feed(UploadSummed{plan_a.task, rejected("checksum-mismatch", "damaged"), true});
  EXPECT_EQ(phase()->tasks().at(plan_a.task).state, RoundMachine::State::kAsked);
  feed(SessionOpened{SessionId(5), "a"});
  hear(5, protocol::Hello{});
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  feed(SessionClosed{SessionId(5)});
  now += 30s;
  hear(2, protocol::Ping{});
  EXPECT_EQ(phase()->tasks().at(plan_a.task).state, RoundMachine::State::kFailed);
}

TEST_F(CoordinatorMachineTest, ADuplicateOfferAfterTheSumIsAcknowledgedAgain) {
  open_round();
  upload(1, plan_a);
  hear(1, protocol::UpdateOffer{head(plan_a)});
  EXPECT_TRUE(actions.empty()) << "being summed";
  feed(UploadSummed{plan_a.task, {}});
  hear(1, protocol::UpdateOffer{head(plan_a)});
  EXPECT_EQ(sent<protocol::UpdateReceived>().size(), 1U);
  EXPECT_TRUE(did<OpenUpload>().empty()) << "counted once";
}

TEST_F(CoordinatorMachineTest, TheDeadlineCommitsWithEnoughAndNamesTheRest) {
  open_round();
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, {}});
  EXPECT_LE(*machine.next_deadline(), now + 60s);
  for (int i = 0; i < 6; ++i) {
    now += 10s;
    hear(1, protocol::Ping{});
    hear(2, protocol::Ping{});
  }
  feed(Tick{});
  // The event at the deadline closes the round, whichever it is.
  ASSERT_TRUE(phase());
  commit();
  const auto ended = sent<protocol::TaskEnded>();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].first, SessionId(2));
  EXPECT_EQ(ended[0].second.code, "deadline");
}

TEST_F(CoordinatorMachineTest, AClientThatStaysAwayIsGivenUpAfterTheGrace) {
  open_round();
  feed(SessionClosed{SessionId(2)});
  EXPECT_LE(*machine.next_deadline(), now + 30s);
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, {}});
  EXPECT_TRUE(did<CommitRound>().empty()) << "it may come back";
  now += 30s;
  feed(Tick{});
  ASSERT_EQ(did<CommitRound>().size(), 1U);
  EXPECT_EQ(did<CommitRound>()[0].summary.failures[0].code, "disconnected");
}

// A broken link may be back at once; a program that was stopped may not.
TEST_F(CoordinatorMachineTest, AClientThatSaidGoodbyeIsAskedAgainOnceItIsBack) {
  context.job.job.rounds = 9;
  context.job.round.cohort = 4;
  open_round();
  join("c", 3);
  join("d", 4);
  const auto next_round = [&](const auto& plans) {
    for (const auto& [session, plan] : plans) {
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, {}});
    }
    EXPECT_EQ(did<CommitRound>().size(), 1U);
    commit();
  };
  const auto asked = [&] {
    std::vector<std::string> names;
    for (const BeginRound& begin : did<BeginRound>()) {
      for (const Participant& one : begin.participants) names.push_back(one.client);
    }
    return names;
  };
  hear(3, protocol::Bye{"stopped", "the client stops"});
  ASSERT_EQ(closed_because(), "bye");
  next_round(std::vector<std::pair<SessionId, protocol::RoundPlan>>{{SessionId(1), plan_a},
                                                                    {SessionId(2), plan_b}});
  ASSERT_EQ(asked(), std::vector<std::string>({"a", "b", "d"})) << "c has gone";
  const auto plans = sent<protocol::RoundPlan>();
  join("c", 5);
  hear(5, protocol::Bye{"stopped", "the client stops"});
  join("c", 6);
  feed(SessionClosed{SessionId(4)});
  now += context.job.round.reconnect_grace;
  feed(Tick{});
  next_round(std::vector(plans.begin(), plans.begin() + 2));
  EXPECT_EQ(asked(), std::vector<std::string>({"a", "b", "c"})) << "it is back";
}

TEST_F(CoordinatorMachineTest, ARoundThatCannotDoWithoutAClientThatSaidGoodbyeWaitsForIt) {
  context.job.round.min_updates = 2;
  open_round();
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, {}});
  upload(2, plan_b);
  feed(UploadSummed{plan_b.task, {}});
  hear(2, protocol::Bye{"stopped", "the client stops"});
  commit();
  EXPECT_TRUE(did<BeginRound>().empty()) << "no attempt is lost";
  EXPECT_EQ(machine.waits_for(RunId(1)), "2 clients (1 connected)");
  join("b", 3);
  EXPECT_EQ(did<BeginRound>().size(), 1U);
}

// It may be restarted, and its update is kept on its disk.
TEST_F(CoordinatorMachineTest, AGoodbyeInARoundLeavesTimeToComeBack) {
  open_round();
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, {}});
  hear(2, protocol::Bye{"stopped", "the client stops"});
  now += 29s;
  feed(Tick{});
  EXPECT_TRUE(did<CommitRound>().empty());
  join("b", 3);
  EXPECT_EQ(sent<protocol::RoundPlan>().size(), 1U);
}

TEST_F(CoordinatorMachineTest, AClientsReasonIsKeptWholeAndCleaned) {
  open_round();
  const std::string reason = "/data/line 7: \x1b[2J" + std::string(900, 'x');
  hear(1, protocol::TaskFailed{plan_a.task, "no-data", reason});
  hear(2, protocol::TaskFailed{plan_b.task, "no-data", reason});
  ASSERT_EQ(did<AbandonRound>().size(), 1U);
  EXPECT_EQ(did<AbandonRound>()[0].summary.failures[0].reason,
            "/data/line 7: ?[2J" + std::string(900, 'x'));
}

TEST_F(CoordinatorMachineTest, KnowsWhenAConnectedClientWasHeard) {
  EXPECT_FALSE(machine.clients().heard_at("a"));
  join("a", 1);
  EXPECT_EQ(machine.clients().heard_at("a"), now);
  now += 5s;
  hear(1, protocol::Ping{});
  EXPECT_EQ(machine.clients().heard_at("a"), now);
  now += 5s;
  feed(SessionClosed{SessionId(1)});
  EXPECT_FALSE(machine.clients().heard_at("a")) << "when it was seen is in the store now";
}

TEST_F(CoordinatorMachineTest, ARoundIsTriedAgainAndTheRunFailsAfterTheLastAttempt) {
  open_round();
  hear(1, protocol::TaskFailed{plan_a.task, "no-data", "nothing to train on"});
  hear(2, protocol::TaskFailed{plan_b.task, "no-data", "nothing to train on"});
  ASSERT_EQ(did<AbandonRound>().size(), 1U);
  EXPECT_TRUE(did<FinishRun>().empty());
  now += 1s;
  EXPECT_EQ(machine.next_deadline(), now);
  feed(Tick{});
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[0].second.attempt, 2U);
  hear(1, protocol::TaskFailed{plans[0].second.task, "no-data", ""});
  hear(2, protocol::TaskFailed{plans[1].second.task, "no-data", ""});
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].error->code(), "too-few-updates");
}

TEST_F(CoordinatorMachineTest, RevocationCutsAndFailsButNeverUncountsASum) {
  open_round();
  upload(1, plan_a);
  feed(ClientRevoked{"a"});
  EXPECT_EQ(closed_because(), "certificate-revoked");
  EXPECT_EQ(phase()->tasks().at(plan_a.task).state, RoundMachine::State::kSumming);
  feed(UploadSummed{plan_a.task, {}});
  feed(ClientRevoked{"b"});
  ASSERT_EQ(did<CommitRound>().size(), 1U);
  EXPECT_EQ(did<CommitRound>()[0].summary.contributors.size(), 1U);
  EXPECT_EQ(did<CommitRound>()[0].summary.failures[0].code, "certificate-revoked");
}

TEST_F(CoordinatorMachineTest, AnUpdateThatIsRefusedWhileSummingDoesNotCount) {
  open_round();
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, rejected("not-finite", "NaN")});
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "not-finite");
}

TEST_F(CoordinatorMachineTest, AStoppedRunEndsAtOnceButNotInTheMiddleOfACommit) {
  open_round();
  upload(1, plan_a);
  feed(UploadSummed{plan_a.task, {}});
  upload(2, plan_b);
  feed(UploadSummed{plan_b.task, {}});
  feed(StopRun{RunId(1)});
  EXPECT_TRUE(did<FinishRun>().empty());
  ASSERT_EQ(did<StopEvaluation>().size(), 1U);
  EXPECT_EQ(did<StopEvaluation>()[0].run, RunId(1));
  commit();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].state, FinishRun::State::kStopped);
  EXPECT_EQ(sent<protocol::RoundCommitted>().size(), 2U);
}

TEST_F(CoordinatorMachineTest, ARestartResumesTheSameAttemptAndTasks) {
  open_round();
  store::RoundRecord record{.key = {RunId(1), 1, 1},
                            .state = store::RoundState::kOpen,
                            .cohort = {{"a", plan_a.task}, {"b", plan_b.task}}};
  CoordinatorMachine restarted({});
  restarted.on(ClientAdmitted{"a", true}, now);
  restarted.on(ClientAdmitted{"b", true}, now);
  actions = restarted.on(RunSubmitted{start_of(1, {}, record)}, now);
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_TRUE(did<BeginRound>()[0].resumed);
  restarted.on(SessionOpened{SessionId(1), "a"}, now);
  actions = restarted.on(MessageReceived{SessionId(1), {protocol::Hello{}, {}}}, now);
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  EXPECT_EQ(sent<protocol::RoundPlan>()[0].second.task, plan_a.task);
}

TEST_F(CoordinatorMachineTest, AResumedAttemptCountsWhatWasSentBefore) {
  open_round();
  hear(1, protocol::ModelRequest{plan_a.task, 0, 1000});
  ASSERT_EQ(did<RecordTraffic>().size(), 1U) << "a download is complete";
  EXPECT_EQ(did<RecordTraffic>()[0].bytes_out, model->size() * 4);
  store::RoundRecord record{.key = {RunId(1), 1, 1},
                            .state = store::RoundState::kOpen,
                            .cohort = {{"a", plan_a.task}, {"b", plan_b.task}}};
  record.result.bytes_in = 3;
  record.result.bytes_out = 400;
  CoordinatorMachine restarted({});
  restarted.on(ClientAdmitted{"a", true}, now);
  restarted.on(ClientAdmitted{"b", true}, now);
  restarted.on(RunSubmitted{start_of(1, {}, record)}, now);
  restarted.on(SessionOpened{SessionId(2), "b"}, now);
  restarted.on(MessageReceived{SessionId(2), {protocol::Hello{}, {}}}, now);
  restarted.on(MessageReceived{SessionId(2), {protocol::ModelRequest{plan_b.task, 0, 1000}, {}}},
               now);
  actions = restarted.on(StopRun{RunId(1)}, now);
  ASSERT_EQ(did<AbandonRound>().size(), 1U);
  EXPECT_EQ(did<AbandonRound>()[0].summary.bytes_in, 3U);
  EXPECT_EQ(did<AbandonRound>()[0].summary.bytes_out, 400 + model->size() * 4);
}

// Rounds 1 and 2 were withdrawn: each is run again as another attempt.
TEST_F(CoordinatorMachineTest, AfterAWithdrawnRoundTheAttemptsOfTheNextAreCountedOn) {
  const auto withdrawn = [](Round round, std::string code) {
    return store::RoundRecord{.key = {RunId(1), round, 1},
                              .state = store::RoundState::kAbandoned,
                              .abandonment = store::Abandonment{std::move(code), "x"}};
  };
  feed(RunSubmitted{start_of(1, {withdrawn(1, "model-damaged"), withdrawn(2, "base-withdrawn")})});
  join("a", 1);
  join("b", 2);
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].attempt, 2U);
  const auto plans = sent<protocol::RoundPlan>();
  for (std::size_t i = 0; i < 2; ++i) {
    upload(i + 1, plans[i].second);
    feed(UploadSummed{plans[i].second.task, {}});
  }
  commit();
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].round, 2U);
  EXPECT_EQ(did<BeginRound>()[0].attempt, 2U);
  // Two attempts that fail are the job's limit; what was withdrawn is none of them.
  const auto second = sent<protocol::RoundPlan>();
  for (const auto& [session, plan] : second) {
    hear(session.value(), protocol::TaskFailed{plan.task, "no-data", ""});
  }
  EXPECT_TRUE(did<FinishRun>().empty());
}

// Of three clients that are asked for two updates, the last to send waits for its turn.
TEST_F(CoordinatorMachineTest, AnOfferRepeatedWhileItsUploadWaitsChangesNothing) {
  context.job.round.over_selection = 1.5;
  context.job.round.wait_for = 3;
  submit();
  join("a", 1);
  join("b", 2);
  join("c", 3);
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 3U);
  upload(1, plans[0].second);
  upload(2, plans[1].second);
  const auto& last = plans[2].second;
  hear(3, protocol::UpdateOffer{head(last)});
  feed(UploadOpened{last.task, 0});
  const SharedBytes bytes = SharedBytes::own(Bytes(head(last).payload_bytes));
  for (std::uint64_t at = 0; at < bytes.size(); at += 20) {
    hear(3, protocol::Chunk{last.task, at},
         bytes.slice(at, std::min<std::size_t>(20, bytes.size() - at)));
  }
  EXPECT_EQ(phase()->find(last.task)->state, RoundMachine::State::kWaiting);
  auto heavier = head(last);
  heavier.weight = 1000;
  hear(3, protocol::UpdateOffer{heavier});
  EXPECT_TRUE(actions.empty());
  feed(UploadSummed{plans[0].second.task, rejected("not-finite", "NaN")});
  ASSERT_EQ(did<SumUpload>().size(), 1U) << "its turn has come";
  EXPECT_EQ(did<SumUpload>()[0].head.weight, 10);
}

TEST_F(CoordinatorMachineTest, DrainingSaysGoodbyeAndLeavesTheRoundOpen) {
  open_round();
  feed(Drain{});
  EXPECT_EQ(sent<protocol::Bye>().size(), 2U);
  EXPECT_TRUE(did<AbandonRound>().empty());
  EXPECT_TRUE(did<FinishRun>().empty());
}

}  // namespace
}  // namespace starling::coordinator
