// SPDX-License-Identifier: Apache-2.0
// The machine by hand: sessions, rounds and what hostile or late messages may not change.
#include "coordinator/coordinator_machine.h"

#include <gtest/gtest.h>

#include "coordinator/run_context.h"
#include "coordinator/run_records.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using protocol::Message;

class CoordinatorMachineTest : public ::testing::Test {
 protected:
  CoordinatorMachineTest()
      : machine({.transfer = {.chunk_bytes_max = 20, .window_bytes = 50}}),
        context(make_context()) {
    model = std::make_shared<model::Parameters>(model::initial_parameters(*context.model, 1));
    version = {RunId(1), 0, model->sha256()};
  }

  static RunContext make_context() {
    Job job;
    job.job.rounds = 2;
    job.training.model.kind = "softmax-regression";
    job.training.data = {{4}, 2};
    job.evaluate.every = 0;
    job.round.cohort = 2;
    job.round.min_updates = 1;
    job.round.wait_for = 2;
    job.round.attempts_max = 2;
    return prepare_run(job, nullptr).value();
  }

  void feed(Event event) { actions = machine.on(std::move(event), now); }
  void hear(std::uint64_t session, Message message, SharedBytes payload = {}) {
    feed(MessageReceived{SessionId(session), {std::move(message), std::move(payload)}});
  }
  template <class T>
  std::vector<T> did() const {
    std::vector<T> found;
    for (const Action& action : actions) {
      if (const auto* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    return found;
  }
  template <class T>
  std::vector<std::pair<SessionId, T>> sent() const {
    std::vector<std::pair<SessionId, T>> found;
    for (const Send& send : did<Send>()) {
      if (const auto* one = std::get_if<T>(&send.envelope.message)) {
        found.emplace_back(send.session, *one);
      }
    }
    return found;
  }
  std::string closed_because() const {
    const auto closed = did<CloseSession>();
    return closed.empty() ? "" : closed[0].code;
  }

  void join(const std::string& client, std::uint64_t session, std::uint64_t rows = 10) {
    feed(ClientAdmitted{client});
    feed(SessionOpened{SessionId(session), client});
    hear(session, protocol::Hello{.rows = rows});
  }
  void submit() { feed(RunSubmitted{to_run_start(RunId(1), context, version, model, {})}); }
  // Clients a (session 1) and b (session 2) with the plan of round 1 each.
  void open_round() {
    submit();
    join("a", 1, rows_of_a);
    join("b", 2);
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U);
    plan_a = plans[0].second;
    plan_b = plans[1].second;
    ASSERT_EQ(did<BeginRound>().size(), 1U);
  }
  update::ContributionHead head(const protocol::RoundPlan& plan) const {
    return {.task = plan.task,
            .base = plan.base,
            .weight = 10,
            .vectors = plan.schema.vectors,
            .payload_bytes = update::payload_bytes(plan.schema.vectors)};
  }
  // By client a. What is said of the weight, but for the settings to look at.
  std::string offer(const protocol::RoundPlan& plan, double weight) {
    update::ContributionHead claims = head(plan);
    claims.weight = weight;
    hear(1, protocol::UpdateOffer{claims});
    EXPECT_EQ(did<OpenUpload>().size(), 1U);
    const auto said = did<Say>();
    return said.empty() ? "" : said[0].line.substr(0, said[0].line.find(" ("));
  }
  void upload(std::uint64_t session, const protocol::RoundPlan& plan) {
    hear(session, protocol::UpdateOffer{head(plan)});
    ASSERT_EQ(did<OpenUpload>().size(), 1U);
    feed(UploadOpened{plan.task, 0});
    ASSERT_EQ(sent<protocol::UpdateAccept>().size(), 1U);
    const SharedBytes bytes = SharedBytes::own(Bytes(head(plan).payload_bytes));
    for (std::uint64_t at = 0; at < bytes.size(); at += 20) {
      hear(session, protocol::Chunk{plan.task, at},
           bytes.slice(at, std::min<std::size_t>(20, bytes.size() - at)));
      ASSERT_EQ(did<WriteUpload>().size(), 1U) << at;
    }
    ASSERT_EQ(did<SumUpload>().size(), 1U);
  }
  void commit() {
    const update::ModelVersion next{RunId(1), version.round + 1, sha256(as_bytes("next"))};
    version = next;
    feed(RoundDurable{std::pair(next, model)});
  }

  TimePoint now{};
  CoordinatorMachine machine;
  RunContext context;
  model::Snapshot model;
  update::ModelVersion version;
  protocol::RoundPlan plan_a;
  protocol::RoundPlan plan_b;
  std::vector<Action> actions;
  std::uint64_t rows_of_a = 10;
};

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
  EXPECT_FALSE(machine.active_run());
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
  EXPECT_EQ(offer(plan_a, 1'000'000), "a: the weight 1000000 counts as 100");
  EXPECT_EQ(offer(plan_a, 1'000'000), "") << "said once";
}

TEST_F(CoordinatorMachineTest, WhoAnnouncedNoRowsCountsAsTheMedian) {
  rows_of_a = 0;
  open_round();
  EXPECT_EQ(offer(plan_a, 1'000'000), "a: the weight 1000000 counts as 10");
}

TEST_F(CoordinatorMachineTest, ARoundThatIsResumedBoundsWeightsAsBefore) {
  RunStart start = to_run_start(RunId(1), context, version, model, {});
  start.open = OpenAttempt{1, 1, {{"a", TaskId(5)}, {"b", TaskId(6)}}};
  feed(ClientAdmitted{"a", true, 1'000'000});
  feed(ClientAdmitted{"b", true, 10});
  feed(RunSubmitted{start});
  feed(SessionOpened{SessionId(1), "a"});
  hear(1, protocol::Hello{.rows = 1'000'000});
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  EXPECT_EQ(offer(sent<protocol::RoundPlan>()[0].second, 1'000'000),
            "a: the weight 1000000 counts as 100")
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
  EXPECT_EQ(to_run_start(RunId(1), context, version, model, {record}).norms, (RecentNorms{{3, 2}}));
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
  EXPECT_EQ(machine.clients_connected(), 0U);
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
  EXPECT_TRUE(machine.connected("a"));
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
  EXPECT_TRUE(machine.connected("a")) << "the old connection's end concerns nobody";
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
  EXPECT_EQ(machine.round()->tasks().at(plan_a.task).state, RoundMachine::State::kAsked);
  hear(2, protocol::Chunk{plan_a.task, 0}, SharedBytes::own(Bytes(20)));
  EXPECT_TRUE(did<WriteUpload>().empty());
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
  ASSERT_TRUE(machine.round());
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
  EXPECT_FALSE(machine.heard_at("a"));
  join("a", 1);
  EXPECT_EQ(machine.heard_at("a"), now);
  now += 5s;
  hear(1, protocol::Ping{});
  EXPECT_EQ(machine.heard_at("a"), now);
  now += 5s;
  feed(SessionClosed{SessionId(1)});
  EXPECT_FALSE(machine.heard_at("a")) << "when it was seen is in the store now";
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
  EXPECT_EQ(machine.round()->tasks().at(plan_a.task).state, RoundMachine::State::kSumming);
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
  commit();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].state, FinishRun::State::kStopped);
  EXPECT_EQ(sent<protocol::RoundCommitted>().size(), 2U);
}

TEST_F(CoordinatorMachineTest, RunsAreHeldOneAfterTheOther) {
  open_round();
  feed(RunSubmitted{to_run_start(RunId(2), context, {RunId(2), 0, {}}, model, {})});
  EXPECT_TRUE(did<BeginRound>().empty());
  feed(StopRun{RunId(1)});
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].run, RunId(2));
  feed(RunSubmitted{to_run_start(RunId(3), context, {RunId(3), 0, {}}, model, {})});
  feed(StopRun{RunId(3)});
  EXPECT_EQ(machine.active_run()->id, RunId(2));
}

// Run 1 needs two clients, run 2 one.
class WaitingRunsTest : public CoordinatorMachineTest {
 protected:
  WaitingRunsTest() {
    context.job.round.min_updates = 2;
    small = context;
    small.job.round.cohort = 1;
    small.job.round.min_updates = 1;
    small.job.round.wait_for = 1;
    small_version = {RunId(2), 0, model->sha256()};
  }
  void submit_small() {
    feed(RunSubmitted{to_run_start(RunId(2), small, small_version, model, {})});
  }
  RunId began() const {
    const auto begun = did<BeginRound>();
    return begun.size() == 1 ? begun[0].run : RunId{};
  }
  // The clients that were just asked report, and the round is committed.
  void finish_round() {
    const auto plans = sent<protocol::RoundPlan>();
    for (const auto& [session, plan] : plans) {
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, {}});
    }
    ASSERT_EQ(did<CommitRound>().size(), 1U);
    const RoundSummary summary = did<CommitRound>()[0].summary;
    feed(RoundDurable{std::pair(
        update::ModelVersion{summary.run, summary.round, sha256(as_bytes("next"))}, model)});
  }

  RunContext small;
  update::ModelVersion small_version;
};

TEST_F(WaitingRunsTest, ARunThatWaitsForClientsYieldsAndKeepsItsPlace) {
  submit();
  ASSERT_EQ(did<RunWaits>().size(), 1U);
  join("a", 1);
  EXPECT_TRUE(machine.idle());
  EXPECT_EQ(machine.waits_for(RunId(1)), "2 clients (1 connected)");
  submit_small();
  EXPECT_EQ(began(), RunId(2));
  EXPECT_FALSE(machine.idle());
  EXPECT_EQ(machine.waits_for(RunId(2)), "");
  const auto of_small = actions;
  join("b", 2);
  EXPECT_TRUE(did<BeginRound>().empty()) << "one round at a time";
  EXPECT_EQ(machine.waits_for(RunId(1)), "round 1 of run 2");
  actions = of_small;
  finish_round();
  EXPECT_EQ(began(), RunId(1)) << "it was submitted first";
  EXPECT_EQ(machine.waits_for(RunId(2)), "round 1 of run 1");
  finish_round();
  EXPECT_EQ(began(), RunId(1));
  finish_round();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].run, RunId(1));
  ASSERT_EQ(began(), RunId(2));
  EXPECT_EQ(did<BeginRound>()[0].round, 2U) << "its first round is kept";
  EXPECT_EQ(did<BeginRound>()[0].base,
            (update::ModelVersion{RunId(2), 1, sha256(as_bytes("next"))}));
  EXPECT_EQ(did<BeginRound>()[0].model, model);
  finish_round();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].state, FinishRun::State::kCompleted);
  EXPECT_FALSE(machine.active_run());
}

TEST_F(WaitingRunsTest, ARunWhoseClientsLeaveGivesWayUntilTheyAreBack) {
  submit();
  submit_small();
  EXPECT_TRUE(did<BeginRound>().empty());
  join("a", 1);
  EXPECT_EQ(began(), RunId(2)) << "the first that can go on";
  const auto of_small = actions;
  join("b", 2);
  actions = of_small;
  finish_round();
  ASSERT_EQ(began(), RunId(1));
  const auto of_large = actions;
  feed(SessionClosed{SessionId(2)});
  now += 30s;  // the grace
  feed(SessionHeard{SessionId(1)});
  feed(Tick{});
  actions = of_large;
  const auto plan = sent<protocol::RoundPlan>()[0].second;
  upload(1, plan);
  feed(UploadSummed{plan.task, {}});
  EXPECT_EQ(did<AbandonRound>().size(), 1U);
  EXPECT_EQ(began(), RunId(2)) << "at once, in the pause before the next attempt";
  finish_round();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].run, RunId(2));
  now += 1s;
  feed(Tick{});
  EXPECT_EQ(did<RunWaits>().size(), 1U);
  EXPECT_EQ(machine.waits_for(RunId(1)), "2 clients (1 connected)");
  join("b", 3);
  ASSERT_EQ(began(), RunId(1));
  EXPECT_EQ(did<BeginRound>()[0].attempt, 2U);
}

TEST_F(WaitingRunsTest, ARunThatHasYieldedIsStoppedAtOnce) {
  submit();
  submit_small();
  join("a", 1);
  ASSERT_EQ(began(), RunId(2));
  feed(StopRun{RunId(1)});
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].run, RunId(1));
  EXPECT_EQ(did<FinishRun>()[0].state, FinishRun::State::kStopped);
  EXPECT_TRUE(did<AbandonRound>().empty()) << "the open round is of another run";
  EXPECT_TRUE(machine.round());
  feed(StopRun{RunId(2)});
  EXPECT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_FALSE(machine.active_run());
}

TEST_F(CoordinatorMachineTest, ARestartResumesTheSameAttemptAndTasks) {
  open_round();
  store::RoundRecord record{.key = {RunId(1), 1, 1},
                            .state = store::RoundState::kOpen,
                            .cohort = {{"a", plan_a.task}, {"b", plan_b.task}}};
  CoordinatorMachine restarted({});
  restarted.on(ClientAdmitted{"a", true}, now);
  restarted.on(ClientAdmitted{"b", true}, now);
  actions =
      restarted.on(RunSubmitted{to_run_start(RunId(1), context, version, model, {record})}, now);
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
  restarted.on(RunSubmitted{to_run_start(RunId(1), context, version, model, {record})}, now);
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
  feed(RunSubmitted{to_run_start(RunId(1), context, version, model,
                                 {withdrawn(1, "model-damaged"), withdrawn(2, "base-withdrawn")})});
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
  EXPECT_EQ(machine.round()->find(last.task)->state, RoundMachine::State::kWaiting);
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
