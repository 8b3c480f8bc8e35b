// SPDX-License-Identifier: Apache-2.0
// Several runs at a time over clients that work for one task at a time; phases of a run; clients
// that cannot do a run, or fail at it every time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/rng.h"
#include "core/client/abilities.h"
#include "core/update/sparse.h"
#include "tests/coordinator/coordinator_machine_fixture.h"

namespace starling::coordinator {
namespace {

// Run 1 needs two clients, run 2 one.
class SeveralRunsTest : public CoordinatorMachineTest {
 protected:
  explicit SeveralRunsTest(std::size_t runs_max = 4) : CoordinatorMachineTest(runs_max) {
    context.job.round.min_updates = 2;
    small = context;
    small.job.round.cohort = 1;
    small.job.round.min_updates = 1;
    small.job.round.wait_for = 1;
  }
  void submit_small(std::uint64_t run = 2) {
    feed(RunSubmitted{
        to_run_start(RunId(run), small, at({RunId(run), 0, model->sha256()}), {}, std::nullopt)});
  }
  std::vector<std::uint64_t> began() const {
    std::vector<std::uint64_t> runs;
    for (const BeginRound& begin : did<BeginRound>()) runs.push_back(begin.run.value());
    return runs;
  }
  using Plans = std::vector<std::pair<SessionId, protocol::RoundPlan>>;
  // The clients of these tasks report; returns their phase, which is to be committed then. Clients
  // that are free may be asked by another run in the same event.
  RoundSummary report(const Plans& plans) {
    for (const auto& [session, plan] : plans) {
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, {}});
    }
    EXPECT_EQ(did<CommitRound>().size(), 1U);
    return did<CommitRound>().at(0).summary;
  }
  void durable(const RoundSummary& summary) {
    feed(RoundDurable{
        summary.run,
        Durable{at({summary.run, summary.round, sha256(as_bytes("next"))}), measured}});
  }

  RunContext small;
};

TEST_F(SeveralRunsTest, RunsOfDisjointClientsGoOnSideBySide) {
  small.job.round.wait_for = 1;
  join("a", 1);
  submit_small(2);
  EXPECT_EQ(began(), std::vector<std::uint64_t>({2}));
  const Plans first = sent<protocol::RoundPlan>();
  join("b", 2);
  submit_small(3);
  EXPECT_EQ(began(), std::vector<std::uint64_t>({3})) << "the other client is free";
  EXPECT_EQ(sent<protocol::RoundPlan>().at(0).first, SessionId(2));
  const Plans second = sent<protocol::RoundPlan>();
  EXPECT_EQ(machine.runs_active(), 2U);
  durable(report(second));
  EXPECT_EQ(began(), std::vector<std::uint64_t>({3})) << "its second round";
  durable(report(first));
  EXPECT_EQ(began(), std::vector<std::uint64_t>({2}));
}

TEST_F(SeveralRunsTest, AClientWorksForOneTaskAtATime) {
  join("a", 1);
  join("b", 2);
  submit();
  EXPECT_EQ(began(), std::vector<std::uint64_t>({1}));
  const Plans plans = sent<protocol::RoundPlan>();
  submit_small();
  EXPECT_TRUE(began().empty()) << "both are at work";
  EXPECT_EQ(machine.waits_for(RunId(2)), "1 client (2 connected, 2 at work for other runs)");
  upload(1, plans[0].second);
  EXPECT_TRUE(began().empty());
  feed(UploadSummed{plans[0].second.task, {}});
  ASSERT_EQ(began(), std::vector<std::uint64_t>({2})) << "a is free, though round 1 is open";
  EXPECT_EQ(sent<protocol::RoundPlan>().at(0).first, SessionId(1));
}

TEST_F(SeveralRunsTest, WithSharedClientsRunsTakeTurns) {
  join("a", 1);
  join("b", 2);
  submit();
  Plans plans = sent<protocol::RoundPlan>();
  small.job.round.cohort = 2;
  small.job.round.min_updates = 2;
  submit_small();
  std::vector<std::uint64_t> order;
  for (int i = 0; i < 4; ++i) {
    const RoundSummary summary = report(plans);
    const std::vector<std::uint64_t> next = began();
    plans = sent<protocol::RoundPlan>();
    order.insert(order.end(), next.begin(), next.end());
    durable(summary);
    EXPECT_TRUE(began().empty()) << "the other run has the clients";
  }
  EXPECT_EQ(order, std::vector<std::uint64_t>({2, 1, 2})) << "while the other one commits";
  EXPECT_EQ(machine.runs_held(), 0U);
}

// Two runs that hold each other's clients: one of them is given clients that never trained in it,
// whose honest updates are far larger than those of its rounds before.
TEST_F(SeveralRunsTest, ABoundThatRefusesMostClientsOfAnAttemptIsRaisedForTheNext) {
  context.job.job.rounds = 9;
  context.job.round.attempts_max = 10;
  context.job.round.cohort = 3;
  context.job.round.wait_for = 3;
  context.job.round.min_updates = 3;
  submit();
  join("a", 1);
  join("b", 2);
  join("c", 3);
  const auto attempt = [&](double norm) {
    const auto norm_max = did<BeginRound>().at(0).norm_max;
    for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
      upload(session.value(), plan);
      const bool above = norm_max && norm > *norm_max;
      feed(UploadSummed{plan.task, above ? Result<double>(rejected("norm-above-bound", "x"))
                                         : Result<double>(norm)});
    }
  };
  attempt(1);
  commit();
  EXPECT_EQ(did<BeginRound>().at(0).norm_max, 10);
  std::vector<store::RoundRecord> records = {
      {.key = {RunId(1), 1, 1},
       .state = store::RoundState::kCommitted,
       .result = {.contributions = {{"a", TaskId(1), 10, 1.0},
                                    {"b", TaskId(2), 10, 1.0},
                                    {"c", TaskId(3), 10, 1.0}}}}};
  for (const double bound : {10, 100, 1000, 10'000}) {
    SCOPED_TRACE(bound);
    EXPECT_EQ(did<BeginRound>().at(0).norm_max, bound);
    attempt(20'000);
    ASSERT_EQ(did<AbandonRound>().size(), 1U);
    const AbandonRound abandoned = did<AbandonRound>()[0];
    EXPECT_EQ(abandoned.reason.message(),
              "0 of the 3 updates that were needed; 3 of 3 failed: 3 norm-above-bound "
              "(aggregation.norm-max)");
    records.push_back({.key = {RunId(1), 2, abandoned.summary.attempt},
                       .state = store::RoundState::kAbandoned,
                       .cohort = {{"a", TaskId(1)}, {"b", TaskId(2)}, {"c", TaskId(3)}},
                       .result = to_record(abandoned.summary, nullptr)});
    now += context.job.round.retry_pause;
    feed(Tick{});
  }
  const RunStart restarted = start_of(1, records);
  EXPECT_EQ(restarted.norm_raises.count(), 4) << "a restart knows";
  EXPECT_FALSE(restarted.failures.left_out("a")) << "it is not to blame";
  EXPECT_EQ(did<BeginRound>().at(0).norm_max, 100'000);
  attempt(20'000);
  commit();
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].round, 3U);
  EXPECT_EQ(did<BeginRound>()[0].norm_max, 200'000) << "of the clients that it has now";
}

TEST_F(SeveralRunsTest, AnUpdateAboveTheBoundInTheMinorityRaisesNothing) {
  context.job.job.rounds = 9;
  context.job.round.attempts_max = 10;
  context.job.round.cohort = 2;
  submit();
  join("a", 1);
  join("b", 2);
  for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
    upload(session.value(), plan);
    feed(UploadSummed{plan.task, 1.0});
  }
  commit();
  for (int i = 1; i <= ClientFailures::kInARowMax; ++i) {
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U);
    EXPECT_EQ(did<BeginRound>().at(0).norm_max, 10);
    for (const auto& [session, plan] : plans) {
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, session == SessionId(2)
                                       ? Result<double>(rejected("norm-above-bound", "x"))
                                       : Result<double>(1.0)});
    }
    EXPECT_EQ(did<AbandonRound>().size(), 1U);
    now += context.job.round.retry_pause;
    feed(Tick{});
  }
  EXPECT_EQ(machine.find_run(RunId(1))->candidates().reach().able, 1U) << "b is left out";
}

TEST_F(SeveralRunsTest, AReplayBoundsNoNorms) {
  version = {RunId(1), 1, model->sha256()};
  RunStart start = start_of(1, {{.key = {RunId(1), 1, 1},
                                 .state = store::RoundState::kCommitted,
                                 .result = {.contributions = {{"a", TaskId(1), 10, 1.0}}}}});
  start.replay.contributors[2] = {"a", "b"};  // which may have counted under a raised bound
  feed(RunSubmitted{std::move(start)});
  join("a", 1);
  join("b", 2);
  EXPECT_EQ(did<BeginRound>().at(0).norm_max, std::nullopt);
}

// Two small runs keep both clients busy, and never free both at once of their own accord.
TEST_F(SeveralRunsTest, ARunThatNeedsTheClientsOfTwoOthersGetsItsTurn) {
  small.job.job.rounds = 9;
  join("a", 1);
  join("b", 2);
  submit_small(2);
  Plans second = sent<protocol::RoundPlan>();
  submit_small(3);
  Plans third = sent<protocol::RoundPlan>();
  submit();
  EXPECT_TRUE(began().empty());
  const auto next_round = [&](Plans& plans) {
    const RoundSummary summary = report(plans);
    std::vector<std::uint64_t> next = began();
    if (!next.empty()) plans = sent<protocol::RoundPlan>();
    durable(summary);
    if (!next.empty()) return next;
    next = began();
    if (!next.empty()) plans = sent<protocol::RoundPlan>();
    return next;
  };
  EXPECT_EQ(next_round(second), std::vector<std::uint64_t>({2})) << "one more round";
  EXPECT_EQ(next_round(third), std::vector<std::uint64_t>({3}));
  EXPECT_TRUE(next_round(second).empty());
  EXPECT_EQ(machine.waits_for(RunId(2)), "its turn: run 1 has waited longer for clients");
  EXPECT_EQ(next_round(third), std::vector<std::uint64_t>({1}));
  EXPECT_NE(machine.waits_for(RunId(2)), "");
  next_round(third);
  EXPECT_TRUE(phase(2) && phase(3)) << "and then they go on";
}

TEST_F(SeveralRunsTest, ARunThatLacksConnectedClientsHoldsNoTurnUp) {
  context.job.round.min_updates = context.job.round.cohort = context.job.round.wait_for = 3;
  small.job.job.rounds = 3;
  join("a", 1);
  join("b", 2);
  submit();
  submit_small(2);
  for (Round round = 1; round <= 3; ++round) {
    const Plans plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 1U) << round;
    durable(report(plans));
  }
  EXPECT_EQ(machine.runs_held(), 1U);
}

TEST_F(SeveralRunsTest, ARunThatWaitsForClientsHoldsNoOtherUp) {
  submit();
  ASSERT_EQ(did<RunWaits>().size(), 1U);
  join("a", 1);
  EXPECT_EQ(machine.runs_active(), 0U);
  EXPECT_EQ(machine.waits_for(RunId(1)), "2 clients (1 connected)");
  submit_small();
  EXPECT_EQ(began(), std::vector<std::uint64_t>({2}));
  EXPECT_EQ(machine.waits_for(RunId(2)), "");
  const Plans of_small = sent<protocol::RoundPlan>();
  join("b", 2);
  EXPECT_TRUE(began().empty()) << "a is at work";
  const RoundSummary summary = report(of_small);
  EXPECT_EQ(began(), std::vector<std::uint64_t>({1})) << "its turn: both are free";
  durable(summary);
  EXPECT_TRUE(began().empty());
}

TEST_F(SeveralRunsTest, OneRunIsStoppedTheOtherGoesOn) {
  join("a", 1);
  join("b", 2);
  submit_small(2);
  submit_small(3);
  ASSERT_TRUE(phase(2) && phase(3));
  feed(StopRun{RunId(2)});
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].run, RunId(2));
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "run-stopped");
  EXPECT_TRUE(phase(3));
  EXPECT_EQ(machine.runs_held(), 1U);
}

TEST_F(SeveralRunsTest, AfterARestartAClientDoesTwoTasksOneAfterTheOther) {
  const auto open = [](std::uint64_t run, std::uint64_t task) {
    return store::RoundRecord{.key = {RunId(run), 1, 1},
                              .state = store::RoundState::kOpen,
                              .cohort = {{"a", TaskId(task)}}};
  };
  feed(ClientAdmitted{"a", true});
  for (std::uint64_t run : {2, 3}) {
    feed(RunSubmitted{to_run_start(RunId(run), small, at({RunId(run), 0, model->sha256()}), {},
                                   open(run, 100 + run))});
  }
  feed(SessionOpened{SessionId(1), "a"});
  hear(1, protocol::Hello{.rows = 10});
  const Plans first = sent<protocol::RoundPlan>();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].second.task, TaskId(102));
  upload(1, first[0].second);
  feed(UploadSummed{first[0].second.task, {}});
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  EXPECT_EQ(sent<protocol::RoundPlan>()[0].second.task, TaskId(103));
}

// One round at a time, of runs of disjoint clients.
class OneAtATimeTest : public SeveralRunsTest {
 protected:
  OneAtATimeTest() : SeveralRunsTest(1) { small.job.job.rounds = 9; }
  store::RoundRecord open_attempt(std::uint64_t run, const std::string& client) const {
    return {.key = {RunId(run), 1, 1},
            .state = store::RoundState::kOpen,
            .cohort = {{client, TaskId(100 + run)}}};
  }
  void resume_small(std::uint64_t run, const std::string& client) {
    feed(RunSubmitted{to_run_start(RunId(run), small, at({RunId(run), 0, model->sha256()}), {},
                                   open_attempt(run, client))});
  }
};

TEST_F(OneAtATimeTest, ARunWhoseClientComesBackWaitsForThePlace) {
  join("a", 1);
  join("b", 2);
  submit();
  const protocol::RoundPlan plan = sent<protocol::RoundPlan>().at(0).second;
  upload(1, plan);
  feed(UploadSummed{plan.task, {}});
  feed(SessionClosed{SessionId(2)});
  now += context.job.round.reconnect_grace;
  feed(Tick{});
  ASSERT_EQ(did<AbandonRound>().size(), 1U);
  now += context.job.round.retry_pause;
  feed(Tick{});
  EXPECT_EQ(machine.waits_for(RunId(1)), "2 clients (1 connected)");
  submit_small(2);
  ASSERT_EQ(began(), std::vector<std::uint64_t>({2}));
  const Plans plans = sent<protocol::RoundPlan>();
  EXPECT_EQ(machine.waits_for(RunId(1)), "2 clients (1 connected, 1 at work for other runs)");
  join("b", 3);
  join("c", 4);
  EXPECT_TRUE(began().empty()) << "though two clients are free";
  EXPECT_EQ(machine.waits_for(RunId(1)),
            "its turn: 1 run has a round open, which is the limit (service.runs-max)");
  const RoundSummary summary = report(plans);
  EXPECT_TRUE(began().empty()) << "a round that is being committed is open";
  durable(summary);
  EXPECT_EQ(began(), std::vector<std::uint64_t>({1}));
  EXPECT_EQ(machine.waits_for(RunId(1)), "");
  EXPECT_EQ(machine.waits_for(RunId(2)),
            "its turn: 1 run has a round open, which is the limit (service.runs-max)");
}

TEST_F(OneAtATimeTest, RunsTakeTurns) {
  std::uint64_t session = 0;
  for (const char* name : {"a", "b", "c"}) join(name, ++session);
  std::vector<std::uint64_t> order;
  submit_small(2);
  Plans plans = sent<protocol::RoundPlan>();
  for (const std::uint64_t run : {3, 4}) submit_small(run);
  for (int i = 0; i < 6; ++i) {
    durable(report(plans));
    ASSERT_EQ(began().size(), 1U);
    order.push_back(began()[0]);
    plans = sent<protocol::RoundPlan>();
  }
  EXPECT_EQ(order, std::vector<std::uint64_t>({2, 3, 4, 2, 3, 4}));
}

TEST_F(OneAtATimeTest, ARunThatLacksClientsLeavesThePlaceToOthers) {
  join("a", 1);
  submit();  // for two clients
  submit_small(2);
  for (int round = 1; round <= 2; ++round) {
    ASSERT_EQ(began(), std::vector<std::uint64_t>({2})) << round;
    durable(report(sent<protocol::RoundPlan>()));
  }
  const Plans plans = sent<protocol::RoundPlan>();
  join("b", 2);
  EXPECT_TRUE(began().empty());
  durable(report(plans));
  EXPECT_EQ(began(), std::vector<std::uint64_t>({1}));
}

TEST_F(OneAtATimeTest, RoundsThatWereOpenAtARestartAllGoOnAndNoOtherBegins) {
  for (const char* name : {"a", "b"}) feed(ClientAdmitted{name, true});
  resume_small(2, "a");
  EXPECT_EQ(began(), std::vector<std::uint64_t>({2}));
  resume_small(3, "b");
  EXPECT_EQ(began(), std::vector<std::uint64_t>({3}));
  join("c", 3);
  submit_small(4);
  EXPECT_TRUE(began().empty());
  join("a", 1);
  durable(report(sent<protocol::RoundPlan>()));
  EXPECT_TRUE(began().empty()) << "one is still open";
  join("b", 2);
  durable(report(sent<protocol::RoundPlan>()));
  EXPECT_EQ(began(), std::vector<std::uint64_t>({2})) << "its last round began first";
}

TEST_F(OneAtATimeTest, ARunThatHasAllItsRoundsEndsWithoutAPlace) {
  join("a", 1);
  submit_small(2);
  ASSERT_TRUE(phase(2));
  version = {RunId(1), 2, model->sha256()};
  submit();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].run, RunId(1));
}

TEST_F(OneAtATimeTest, AnAttemptThatIsDueAndHasNoPlaceSetsNoTimer) {
  join("a", 1);
  join("b", 2);
  submit_small(2);
  const Plans plans = sent<protocol::RoundPlan>();
  submit_small(3);
  hear(plans.at(0).first.value(), protocol::TaskFailed{plans.at(0).second.task, "busy", "x"});
  EXPECT_EQ(did<AbandonRound>().size(), 1U);
  EXPECT_EQ(began(), std::vector<std::uint64_t>({3}));
  now += small.job.round.retry_pause;
  feed(Tick{});
  EXPECT_TRUE(began().empty());
  ASSERT_TRUE(machine.next_deadline());
  EXPECT_GT(*machine.next_deadline(), now);
}

TEST_F(SeveralRunsTest, AnUpdateForAnotherRunsTaskIsTakenWhileOneIsAtWork) {
  join("a", 1);
  join("b", 2);
  submit();
  const Plans plans = sent<protocol::RoundPlan>();
  upload(1, plans[0].second);
  submit_small();
  feed(UploadSummed{plans[0].second.task, {}});
  ASSERT_EQ(began(), std::vector<std::uint64_t>({2}));
  hear(1, protocol::UpdateOffer{head(plans[0].second)});
  EXPECT_EQ(sent<protocol::UpdateReceived>().size(), 1U) << "of the phase that is still open";
}

// --- evaluation by clients ----------------------------------------------------------------------

class EvaluationTest : public CoordinatorMachineTest {
 protected:
  EvaluationTest() {
    context.job.evaluate.federated_every = 1;
    context.job.job.rounds = 2;
  }
  // `held_out` 0: of an earlier version, which does not say it.
  void join_evaluator(const std::string& client, std::uint64_t session,
                      std::uint64_t held_out = 0) {
    feed(ClientAdmitted{client});
    feed(SessionOpened{SessionId(session), client});
    hear(session, protocol::Hello{.rows = 10, .abilities = {"evaluate"}, .held_out = held_out});
  }
  // Every evaluation until it is stored.
  void evaluate_round() {
    for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
      report_evaluation(session.value(), plan);
    }
    feed(RoundDurable{RunId(1), Durable{{}, Measured{true, 0.5, 0.75}}});
  }
  bool said(const std::string& line) const {
    return std::ranges::any_of(did<Say>(), [&](const Say& say) { return say.line == line; });
  }
  std::vector<std::uint64_t> asked() const {
    std::vector<std::uint64_t> sessions;
    for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
      sessions.push_back(session.value());
    }
    return sessions;
  }
  void train_round() { train_round(sent<protocol::RoundPlan>()); }
  void train_round(const std::vector<std::pair<SessionId, protocol::RoundPlan>>& plans) {
    for (const auto& [session, plan] : plans) {
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, {}});
    }
    commit();
  }
  void report_evaluation(std::uint64_t session, const protocol::RoundPlan& plan) {
    hear(session, protocol::UpdateOffer{{.task = plan.task,
                                         .base = plan.base,
                                         .weight = 3,
                                         .scalars = {{"loss", 0.5}, {"accuracy", 0.75}}}});
    ASSERT_EQ(did<SumUpload>().size(), 1U);
    EXPECT_TRUE(did<OpenUpload>().empty()) << "there are no vectors";
    feed(UploadSummed{plan.task, 0.0});
  }
};

TEST_F(EvaluationTest, FollowsTheCommitOfItsRound) {
  context.job.round.cohort = 3;
  context.job.round.wait_for = 3;
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  join("c", 3);
  train_round();
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].kind, protocol::TaskKind::kEvaluate);
  EXPECT_EQ(did<BeginRound>()[0].round, 1U);
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 2U) << "c holds no rows out";
  EXPECT_EQ(plans[0].second.kind, protocol::TaskKind::kEvaluate);
  EXPECT_EQ(plans[0].second.base, version);
  hear(1, protocol::ModelRequest{plans[0].second.task, 0, 1000});
  EXPECT_FALSE(sent<protocol::Chunk>().empty());
  report_evaluation(1, plans[0].second);
  report_evaluation(2, plans[1].second);
  ASSERT_EQ(did<CommitRound>().size(), 1U);
  EXPECT_EQ(did<CommitRound>()[0].summary.kind, protocol::TaskKind::kEvaluate);
  EXPECT_EQ(did<CommitRound>()[0].summary.contributors[0].weight, 3);
  feed(RoundDurable{RunId(1), Durable{{}, Measured{true, 0.5, 0.75}}});
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].kind, protocol::TaskKind::kTrain);
  EXPECT_EQ(did<BeginRound>()[0].round, 2U);
}

// As by the records, from which a restart counts.
TEST_F(EvaluationTest, OneThatCountsDoesNotEndTheRowOfFailedTrainings) {
  context.job.job.rounds = 10;
  context.job.round.cohort = 2;
  context.job.round.min_updates = 1;
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  for (int i = 0; i < ClientFailures::kInARowMax; ++i) {
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U) << i;
    hear(2, protocol::TaskFailed{plans[1].second.task, "diverged", "x"});
    train_round({plans[0]});
    evaluate_round();
  }
  EXPECT_EQ(asked(), std::vector<std::uint64_t>{1});
}

TEST_F(EvaluationTest, OneThatFailsDoesNotEndTheRun) {
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  train_round();
  for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
    hear(session.value(), protocol::TaskFailed{plan.task, "no-data", "x"});
  }
  ASSERT_EQ(did<AbandonRound>().size(), 1U);
  EXPECT_EQ(did<AbandonRound>()[0].summary.kind, protocol::TaskKind::kEvaluate);
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].kind, protocol::TaskKind::kTrain) << "no second attempt";
}

TEST_F(EvaluationTest, ASilentClientIsLeftOutOfEvaluationsAndStillTrains) {
  context.job.job.rounds = 20;
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  const auto b_is_silent = [&] {
    train_round();
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U);
    report_evaluation(1, plans[0].second);
    EXPECT_TRUE(did<CommitRound>().empty()) << "b may still answer";
    now += context.job.round.deadline;
    hear(2, protocol::Ping{});
    ASSERT_EQ(did<CommitRound>().size(), 1U);
    feed(RoundDurable{RunId(1), Durable{{}, Measured{true, 0.5, 0.75}}});
  };
  b_is_silent();
  EXPECT_TRUE(machine.find_run(RunId(1))->candidates().reach().left_out.empty())
      << "once may be luck";
  train_round();
  evaluate_round();
  b_is_silent();
  b_is_silent();
  EXPECT_TRUE(
      said("b is not asked to evaluate in this run for now: 2 evaluations that were waited for "
           "failed, without one that counted between (no evaluation came within 60.0 s); it is "
           "asked again from round 13 on"));
  const Candidates::Reach reach = machine.find_run(RunId(1))->candidates().reach();
  EXPECT_EQ(reach.able, 2U);
  ASSERT_EQ(reach.left_out.size(), 1U);
  EXPECT_EQ(reach.left_out[0].client, "b");
  EXPECT_TRUE(reach.left_out[0].trains);
  EXPECT_EQ(reach.left_out[0].reason,
            "it may train and is not asked to evaluate; 2 evaluations that were waited for failed, "
            "without one that counted between: no evaluation came within 60.0 s; it is asked again "
            "from round 13 on, or once it has connected again");
  for (int round = 5; round < 13; ++round) {
    EXPECT_EQ(asked(), std::vector<std::uint64_t>({1, 2})) << "to train, round " << round;
    train_round();
    EXPECT_EQ(asked(), std::vector<std::uint64_t>({1})) << round;
    evaluate_round();
  }
  train_round();
  EXPECT_EQ(asked(), std::vector<std::uint64_t>({1, 2}));
}

TEST_F(EvaluationTest, OneThatGoesAwayDuringEvaluationsIsLeftOutOfThemUntilItIsBack) {
  context.job.job.rounds = 9;
  context.job.round.reconnect_grace = 30s;
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  auto trainings = sent<protocol::RoundPlan>();
  for (std::uint64_t round = 1; round <= 2; ++round) {
    train_round(trainings);
    ASSERT_EQ(asked(), std::vector<std::uint64_t>({1, round + 1}));
    const auto plans = sent<protocol::RoundPlan>();
    feed(SessionClosed{SessionId(round + 1)});
    report_evaluation(1, plans[0].second);
    now += 30s;
    feed(Tick{});
    ASSERT_EQ(did<CommitRound>().size(), 1U);
    EXPECT_EQ(did<CommitRound>()[0].summary.failures.at(0).code, kDisconnected);
    feed(RoundDurable{RunId(1), Durable{{}, Measured{true, 0.5, 0.75}}});
    trainings = sent<protocol::RoundPlan>();
    EXPECT_EQ(machine.find_run(RunId(1))->candidates().reach().left_out.size(), round - 1);
    feed(SessionOpened{SessionId(round + 2), "b"});
    hear(round + 2, protocol::Hello{.rows = 10, .abilities = {"evaluate"}});
  }
  train_round(trainings);
  EXPECT_EQ(asked(), std::vector<std::uint64_t>({1, 4})) << "it was back: once more";
}

// c holds rows out and lets trainings pass.
TEST_F(EvaluationTest, OneThatIsLeftOutOfTrainingsEvaluatesWhereTooFewOthersDo) {
  context.job.job.rounds = 9;
  context.job.round.cohort = 3;
  context.job.round.min_updates = 2;
  context.job.round.wait_for = 3;
  submit();
  join("a", 1);
  join("b", 2);
  join_evaluator("c", 3);
  const auto train_without_c = [&](const auto& plans) {
    for (const auto& [session, plan] : plans) {
      if (session == SessionId(3)) continue;
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, {}});
    }
    if (did<CommitRound>().empty()) {
      now += context.job.round.deadline;
      hear(3, protocol::Ping{});
    }
    ASSERT_EQ(did<CommitRound>().size(), 1U);
    commit();
  };
  for (int round = 1; round <= ClientPauses::kTrainingsInARowMax; ++round) {
    ASSERT_EQ(asked(), std::vector<std::uint64_t>({1, 2, 3}));
    train_without_c(sent<protocol::RoundPlan>());
    EXPECT_EQ(asked(), std::vector<std::uint64_t>({3})) << "to evaluate, round " << round;
    evaluate_round();
  }
  EXPECT_EQ(asked(), std::vector<std::uint64_t>({1, 2})) << "to train";
  const auto trainings = sent<protocol::RoundPlan>();
  join_evaluator("d", 4);
  train_without_c(trainings);
  EXPECT_EQ(asked(), std::vector<std::uint64_t>({4})) << "another evaluates";
}

TEST_F(EvaluationTest, WhatIsNotOfAClientsOwnMakingDoesNotLeaveItOut) {
  context.job.job.rounds = 9;
  context.job.round.cohort = 2;
  context.job.evaluate.federated_cohort = 1;
  context.job.round.over_selection = 2;
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  for (int round = 1; round <= 3; ++round) {
    train_round();
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U) << "one more than is wanted, round " << round;
    report_evaluation(1, plans[0].second);
    ASSERT_EQ(did<CommitRound>().size(), 1U) << "b is not waited for";
    ASSERT_EQ(did<CommitRound>()[0].summary.failures.size(), 1U);
    EXPECT_EQ(did<CommitRound>()[0].summary.failures[0].code, "round-closed");
    feed(RoundDurable{RunId(1), Durable{{}, Measured{true, 0.5, 0.75}}});
  }
  EXPECT_TRUE(machine.find_run(RunId(1))->candidates().reach().left_out.empty());
  for (int round = 4; round <= 6; ++round) {
    train_round();
    for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
      hear(session.value(), protocol::UpdateOffer{{.task = plan.task,
                                                   .base = plan.base,
                                                   .weight = 3,
                                                   .scalars = {{"loss", 0.5}, {"accuracy", 1}}}});
      if (did<SumUpload>().empty()) continue;
      feed(UploadSummed{plan.task, retry("disk-full", "no space left")});
    }
    ASSERT_EQ(did<AbandonRound>().size(), 1U) << round;
  }
  EXPECT_TRUE(machine.find_run(RunId(1))->candidates().reach().left_out.empty());
}

TEST_F(EvaluationTest, AWeightIsBoundByTheRowsThatItsClientHoldsOut) {
  context.job.round.cohort = 3;
  context.job.round.wait_for = 3;
  submit();
  join_evaluator("a", 1, 4);
  join_evaluator("b", 2, 4);
  join_evaluator("earlier", 3);
  train_round();
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 3U);
  const auto offer = [&](std::size_t i, double weight) {
    hear(i + 1, protocol::UpdateOffer{{.task = plans[i].second.task,
                                       .base = plans[i].second.base,
                                       .weight = weight,
                                       .scalars = {{"loss", 0.5}, {"accuracy", 0.75}}}});
  };
  offer(0, 4);
  EXPECT_EQ(did<SumUpload>().size(), 1U);
  offer(1, 5);
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "weight-above-rows");
  EXPECT_THAT(sent<protocol::TaskEnded>()[0].second.message,
              ::testing::StartsWith("the evaluation claims the weight of "));
  offer(2, 10);
  EXPECT_EQ(did<SumUpload>().size(), 1U) << "it only says its 10 training rows";
}

TEST_F(EvaluationTest, SaysWhyNoClientEvaluatesAndThatTheMetricWasNeverMeasured) {
  context.job.job.rounds = 3;
  context.job.stop = {.metric = "federated-loss"};
  submit();
  join("a", 1);
  join("b", 2);
  train_round();
  EXPECT_TRUE(
      said("[round 1/3] the model is not evaluated by clients: none of the 2 clients holds "
           "rows out (data.hold-out in edge.toml, or a trainer's 'evaluate')"));
  const auto plans = sent<protocol::RoundPlan>();
  join_evaluator("away", 3);
  feed(SessionClosed{SessionId(3)});
  now += context.job.round.reconnect_grace;
  for (const auto& [session, plan] : plans) {
    upload(session.value(), plan);
    feed(UploadSummed{plan.task, {}});
  }
  commit();
  EXPECT_TRUE(
      said("[round 2/3] the model is not evaluated by clients: 1 client holds rows out: 0 "
           "at work for other runs, 1 not connected, 0 cannot do this run or left out"));
  train_round();
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].state, FinishRun::State::kCompleted);
  EXPECT_TRUE(
      said("stop.metric = 'federated-loss' was never measured, so it could not end the run"));
}

TEST_F(EvaluationTest, FewerThanTheRuleNeedsAreNotAsked) {
  context.job.aggregation.rule = "trimmed-mean";
  context.job.round.cohort = 3;
  context.job.round.wait_for = 3;
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  join("c", 3);
  train_round();
  EXPECT_TRUE(
      said("[round 1/2] the model is not evaluated by clients: 2 clients hold rows out: 0 "
           "at work for other runs, 0 not connected, 0 cannot do this run or left out; "
           "aggregation.trim = 1 needs 3"));
}

// Such a job is refused today; an earlier version began it.
TEST_F(EvaluationTest, FewerWantedThanTheRuleNeedsAreNotAsked) {
  context.job.aggregation.rule = "trimmed-mean";
  context.job.evaluate.federated_cohort = 2;
  context.job.round.over_selection = 2;
  context.job.round.cohort = 3;
  context.job.round.wait_for = 3;
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  join_evaluator("c", 3);
  train_round();
  EXPECT_TRUE(
      said("[round 1/2] the model is not evaluated by clients: 3 clients hold rows out: 0 "
           "at work for other runs, 0 not connected, 0 cannot do this run or left out; "
           "aggregation.trim = 1 needs 3, and evaluate.federated-cohort is 2"));
}

TEST_F(EvaluationTest, ARunThatIsStoppedWhileOneIsStoredEndsAlsoWhereThatFails) {
  submit();
  join_evaluator("a", 1);
  join_evaluator("b", 2);
  train_round();
  for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
    report_evaluation(session.value(), plan);
  }
  ASSERT_EQ(did<CommitRound>().size(), 1U);
  feed(StopRun{RunId(1)});
  EXPECT_TRUE(did<FinishRun>().empty());
  feed(RoundDurable{RunId(1), internal("io-error", "x")});
  ASSERT_EQ(did<AbandonRound>().size(), 1U);
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].state, FinishRun::State::kStopped);
}

TEST_F(EvaluationTest, IsLeftOutWhereNobodyHoldsRowsOut) {
  submit();
  join("a", 1);
  join("b", 2);
  train_round();
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  EXPECT_EQ(did<BeginRound>()[0].kind, protocol::TaskKind::kTrain);
}

// Runs that share clients, which all hold rows out.
class SharedEvaluationTest : public EvaluationTest {
 protected:
  SharedEvaluationTest() {
    context.job.round.cohort = 3;
    context.job.round.min_updates = 2;
    context.job.round.wait_for = 3;
    slow = context;
    slow.job.evaluate.federated_every = 0;
    slow.job.round.cohort = 1;
    slow.job.round.min_updates = 1;
    slow.job.round.wait_for = 1;
    slow.job.round.deadline = 1h;
  }
  RunStart slow_start(std::uint64_t run, const std::optional<store::RoundRecord>& open = {}) const {
    return to_run_start(RunId(run), slow, at({RunId(run), 0, model->sha256()}), {}, open);
  }
  // Run 2 has client c at work for an hour, and round 1 of run 1 has been committed by a and b.
  protocol::RoundPlan train_beside_a_slow_run() {
    context.job.round.wait_for = 2;
    join_evaluator("c", 3);
    feed(RunSubmitted{slow_start(2)});
    auto of_c = sent<protocol::RoundPlan>().at(0).second;
    for (std::uint64_t session : {1, 2}) join_evaluator(session == 1 ? "a" : "b", session);
    submit();
    train_round();
    return of_c;
  }

  RunContext slow;
};

// Whatever the order in which clients report and commits become durable.
TEST_F(SharedEvaluationTest, EveryRoundOfEachRunIsEvaluatedByAll) {
  context.job.job.rounds = 4;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng({.seed = seed});
    CoordinatorMachine each({.transfer = {.chunk_bytes_max = 20, .window_bytes = 50}});
    std::vector<std::pair<SessionId, protocol::RoundPlan>> tasks;
    std::vector<RoundSummary> commits;
    std::map<std::uint64_t, std::vector<std::size_t>> evaluated;  // by how many, each run's rounds
    std::size_t finished = 0;
    const auto give = [&](Event event) {
      actions = each.on(std::move(event), now);
      for (const auto& task : sent<protocol::RoundPlan>()) tasks.push_back(task);
      for (const CommitRound& commit : did<CommitRound>()) commits.push_back(commit.summary);
      finished += did<FinishRun>().size();
    };
    const auto say = [&](SessionId session, Message message, SharedBytes payload = {}) {
      give(MessageReceived{session, {std::move(message), std::move(payload)}});
    };
    const auto report = [&](SessionId session, const protocol::RoundPlan& plan) {
      if (plan.kind == protocol::TaskKind::kEvaluate) {
        say(session, protocol::UpdateOffer{{.task = plan.task,
                                            .base = plan.base,
                                            .weight = 3,
                                            .scalars = {{"loss", 0.5}, {"accuracy", 0.75}}}});
      } else {
        say(session, protocol::UpdateOffer{head(plan)});
        const SharedBytes bytes = SharedBytes::own(Bytes(head(plan).payload_bytes));
        give(UploadOpened{plan.task, 0});
        for (std::uint64_t at = 0; at < bytes.size(); at += 20) {
          say(session, protocol::Chunk{plan.task, at},
              bytes.slice(at, std::min<std::size_t>(20, bytes.size() - at)));
        }
      }
      give(UploadSummed{plan.task, 0.0});
    };
    const auto make_durable = [&](const RoundSummary& summary) {
      if (summary.kind == protocol::TaskKind::kEvaluate) {
        evaluated[summary.run.value()].push_back(summary.contributors.size());
        give(RoundDurable{summary.run, Durable{{}, Measured{true, 0.5, 0.75}}});
      } else {
        const Sha256Digest next = sha256(as_bytes("next"));
        give(RoundDurable{summary.run, Durable{at({summary.run, summary.round, next}), {}}});
      }
    };
    for (std::uint64_t client = 1; client <= 3; ++client) {
      const std::string name = "client-" + std::to_string(client);
      give(ClientAdmitted{name});
      give(SessionOpened{SessionId(client), name});
      say(SessionId(client), protocol::Hello{.rows = 10, .abilities = {"evaluate"}});
    }
    for (std::uint64_t run : {1, 2}) give(RunSubmitted{start_of(run)});
    while (!tasks.empty() || !commits.empty()) {
      std::size_t chosen = rng.below(tasks.size() + commits.size());
      if (chosen < tasks.size()) {
        const auto [session, plan] = tasks[chosen];
        tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(chosen));
        report(session, plan);
      } else {
        chosen -= tasks.size();
        const RoundSummary summary = commits[chosen];
        commits.erase(commits.begin() + static_cast<std::ptrdiff_t>(chosen));
        make_durable(summary);
      }
    }
    EXPECT_EQ(finished, 2U);
    EXPECT_EQ(evaluated[1], std::vector<std::size_t>({3, 3, 3, 3}));
    EXPECT_EQ(evaluated[2], std::vector<std::size_t>({3, 3, 3, 3}));
  }
}

TEST_F(SharedEvaluationTest, AClientThatComesFreeInTimeIsWaitedFor) {
  const protocol::RoundPlan of_c = train_beside_a_slow_run();
  EXPECT_TRUE(did<BeginRound>().empty());
  EXPECT_TRUE(said("[round 1/2] waiting for 3 clients to evaluate (1 at work for other runs)"));
  EXPECT_EQ(did<RunWaits>().size(), 1U);
  EXPECT_EQ(machine.waits_for(RunId(1)), "3 clients to evaluate (1 at work for other runs)");
  now += context.job.round.deadline - 1s;
  feed(Tick{});
  EXPECT_TRUE(did<BeginRound>().empty());
  upload(3, of_c);
  feed(UploadSummed{of_c.task, {}});
  EXPECT_EQ(asked(), std::vector<std::uint64_t>({1, 2, 3}));
  EXPECT_EQ(did<BeginRound>().at(0).kind, protocol::TaskKind::kEvaluate);
}

TEST_F(SharedEvaluationTest, AtItsDeadlineItIsByThoseThatAreFree) {
  train_beside_a_slow_run();
  ASSERT_TRUE(did<BeginRound>().empty());
  ASSERT_TRUE(machine.next_deadline());
  EXPECT_LE(*machine.next_deadline(), now + context.job.round.deadline);
  now += context.job.round.deadline;
  for (std::uint64_t session : {1, 2, 3}) hear(session, protocol::Ping{});
  EXPECT_EQ(phase()->options().kind, protocol::TaskKind::kEvaluate);
  std::vector<std::string> clients;
  for (const auto& [id, task] : phase()->tasks()) clients.push_back(task.client);
  EXPECT_THAT(clients, ::testing::UnorderedElementsAre("a", "b"));
  EXPECT_TRUE(phase(2)) << "it keeps its client";
}

TEST_F(SharedEvaluationTest, WhereNobodyIsFreeAtTheDeadlineThatIsSaid) {
  context.job.evaluate.federated_cohort = 3;
  context.job.round.min_updates = 1;
  context.job.round.cohort = 2;
  train_beside_a_slow_run();
  EXPECT_EQ(machine.waits_for(RunId(1)), "3 clients to evaluate (1 at work for other runs)");
  for (std::uint64_t session : {1, 2}) feed(SessionClosed{SessionId(session)});
  now += context.job.round.deadline;
  hear(3, protocol::Ping{});
  EXPECT_TRUE(
      said("[round 1/2] the model is not evaluated by clients: 3 clients hold rows out: 1 at work "
           "for other runs, 2 not connected, 0 cannot do this run or left out"));
}

// A run that could train with the clients that are free would keep them for a round at a time.
TEST_F(SharedEvaluationTest, AnotherRunBeginsOneMoreRoundAtMost) {
  const protocol::RoundPlan of_c = train_beside_a_slow_run();
  slow.job.job.rounds = 9;
  feed(RunSubmitted{slow_start(3)});
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 1U);
  upload(plans[0].first.value(), plans[0].second);
  feed(UploadSummed{plans[0].second.task, {}});
  feed(RoundDurable{RunId(3), Durable{at({RunId(3), 1, sha256(as_bytes("next"))}), {}}});
  EXPECT_FALSE(phase(3));
  EXPECT_EQ(machine.waits_for(RunId(3)), "its turn: run 1 has waited longer for clients");
  upload(3, of_c);
  feed(UploadSummed{of_c.task, {}});
  EXPECT_EQ(asked(), std::vector<std::uint64_t>({1, 2, 3}));
}

TEST_F(SharedEvaluationTest, AfterARestartItIsStillDueAndWaitsForClientsThatResumeOtherRounds) {
  for (const char* name : {"a", "b", "c"}) {
    feed(ClientAdmitted{name, true, {.rows = 10, .abilities = {"evaluate"}}});
  }
  feed(RunSubmitted{slow_start(2, store::RoundRecord{.key = {RunId(2), 1, 1},
                                                     .state = store::RoundState::kOpen,
                                                     .cohort = {{"c", TaskId(102)}}})});
  version = {RunId(1), 1, model->sha256()};
  feed(RunSubmitted{
      start_of(1, {{.key = {RunId(1), 1, 1}, .state = store::RoundState::kCommitted}})});
  EXPECT_TRUE(did<BeginRound>().empty());
  EXPECT_EQ(machine.waits_for(RunId(1)), "3 clients to evaluate (1 at work for other runs)");
  now += context.job.round.reconnect_grace;  // less than after a restart
  std::uint64_t session = 0;
  for (const char* name : {"a", "b", "c"}) {
    feed(SessionOpened{SessionId(++session), name});
    hear(session, protocol::Hello{.rows = 10, .abilities = {"evaluate"}});
    EXPECT_TRUE(did<BeginRound>().empty());
  }
  const auto of_c = sent<protocol::RoundPlan>();
  ASSERT_EQ(of_c.size(), 1U);
  upload(3, of_c[0].second);
  feed(UploadSummed{of_c[0].second.task, {}});
  EXPECT_EQ(asked(), std::vector<std::uint64_t>({1, 2, 3}));
  EXPECT_EQ(did<BeginRound>().at(0).kind, protocol::TaskKind::kEvaluate);
}

TEST_F(EvaluationTest, AnOpenOneIsResumed) {
  version = {RunId(1), 1, model->sha256()};
  const store::RoundRecord trained{.key = {RunId(1), 1, 1}, .state = store::RoundState::kCommitted};
  const store::RoundRecord open{
      .key = {.run = RunId(1), .round = 1, .attempt = 1, .kind = store::PhaseKind::kEvaluate},
      .state = store::RoundState::kOpen,
      .cohort = {{"a", TaskId(9)}}};
  feed(RunSubmitted{start_of(1, {trained}, open)});
  EXPECT_EQ(did<BeginRound>().at(0).kind, protocol::TaskKind::kEvaluate);
  EXPECT_TRUE(did<BeginRound>()[0].resumed);
}

// --- early stopping -----------------------------------------------------------------------------

TEST_F(CoordinatorMachineTest, StopsWhenTheMetricHasNotImprovedForAWhile) {
  context.job.job.rounds = 100;
  context.job.stop = {.metric = "accuracy", .patience = 2, .min_change = 0.01};
  open_round();
  const std::vector<double> accuracies = {0.5, 0.6, 0.605, 0.55};
  for (std::size_t round = 0; round < accuracies.size(); ++round) {
    measured = Measured{false, 1, accuracies[round]};
    for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, {}});
    }
    EXPECT_TRUE(did<FinishRun>().empty());
    commit();
  }
  ASSERT_EQ(did<FinishRun>().size(), 1U);
  EXPECT_EQ(did<FinishRun>()[0].state, FinishRun::State::kCompleted);
  bool said = false;
  for (const Say& say : did<Say>()) {
    said = said || say.line ==
                       "stopped early: accuracy has not improved by more than 0.01 for 2 "
                       "evaluations since round 2 (0.6000)";
  }
  EXPECT_TRUE(said);
}

TEST_F(CoordinatorMachineTest, SaysOnceThatTheMetricsAccuracyIsSaidByNobody) {
  context.job.job.rounds = 3;
  context.job.stop = {.metric = "accuracy", .patience = 1};
  open_round();
  for (int round = 1; round <= 3; ++round) {
    measured = Measured{.federated = false, .loss = 1};
    for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, {}});
    }
    commit();
    const std::string line =
        "the evaluation of round 1 says no accuracy, so stop.metric = 'accuracy' cannot end the "
        "run by it; submit such runs with 'loss'";
    EXPECT_EQ(std::ranges::count(did<Say>(), line, &Say::line), round == 1 ? 1 : 0);
  }
  EXPECT_EQ(did<FinishRun>().size(), 1U) << "after all its rounds";
}

TEST_F(CoordinatorMachineTest, SaysWhichEvaluationsLackTheMetricThatEndsTheRun) {
  context.job.job.rounds = 6;
  context.job.stop = {.metric = "mae", .mode = "min", .patience = 1};
  open_round();
  const std::vector<train::Metrics> metrics = {
      {{"mae", 2}}, {{"r2", 1}, {"rmse", 1}}, {}, {{"mae", 1}, {"r2", 2}}, {}, {{"mae", 1}}};
  std::vector<std::string> lines;
  for (const train::Metrics& found : metrics) {
    measured = Measured{.federated = false, .loss = 1, .metrics = found};
    for (const auto& [session, plan] : sent<protocol::RoundPlan>()) {
      upload(session.value(), plan);
      feed(UploadSummed{plan.task, {}});
    }
    EXPECT_TRUE(did<FinishRun>().empty());
    commit();
    for (const Say& say : did<Say>()) {
      if (say.line.find("'mae'") != say.line.npos) lines.push_back(say.line);
    }
  }
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "the evaluation of round 2 says no 'mae' (it says r2, rmse), so it does not "
                       "count for stop.metric = 'mae'",
                       "the evaluation of round 5 says no 'mae' (it says no metrics), so it does "
                       "not count for stop.metric = 'mae'"}))
      << "once while it lasts";
  EXPECT_EQ(did<FinishRun>().size(), 1U);
}

TEST_F(CoordinatorMachineTest, ARunThatHeldAllItsRoundsDidNotStopEarly) {
  context.job.stop = {.metric = "loss", .patience = 1};
  context.job.job.rounds = 2;
  version = {RunId(1), 2, model->sha256()};
  std::vector<store::RoundRecord> rounds(2);
  for (Round round : {1, 2}) {
    store::RoundRecord& record = rounds[round - 1];
    record = {.key = {RunId(1), round, 1}, .state = store::RoundState::kCommitted};
    record.result.evaluation = {0.5, 0.5};
  }
  feed(RunSubmitted{start_of(1, rounds)});
  EXPECT_EQ(did<FinishRun>().size(), 1U);
  for (const Say& say : did<Say>()) EXPECT_EQ(say.line.find("stopped early"), say.line.npos);
}

TEST_F(CoordinatorMachineTest, ARestartKnowsWhatWasMeasured) {
  context.job.stop = {.metric = "loss", .patience = 1};
  version = {RunId(1), 2, model->sha256()};
  const auto record = [](Round round, double loss) {
    store::RoundRecord made{.key = {RunId(1), round, 1}, .state = store::RoundState::kCommitted};
    made.result.evaluation = {loss, 0.5};
    return made;
  };
  context.job.job.rounds = 9;
  feed(RunSubmitted{start_of(1, {record(1, 0.5), record(2, 0.6)})});
  EXPECT_EQ(did<FinishRun>().size(), 1U);
}

// --- who can do a run ---------------------------------------------------------------------------

class AbilitiesTest : public CoordinatorMachineTest {
 protected:
  AbilitiesTest() { context.for_clients.strategy.name = "scaffold"; }
  void join_able(const std::string& client, std::uint64_t session,
                 std::vector<std::string> abilities, std::vector<std::uint32_t> input = {}) {
    feed(ClientAdmitted{client});
    feed(SessionOpened{SessionId(session), client});
    hear(session,
         protocol::Hello{.rows = 10, .abilities = std::move(abilities), .input = std::move(input)});
  }
};

TEST_F(AbilitiesTest, OnlyThoseThatCanAreAskedAndTheOthersAreNamed) {
  submit();
  join("old", 1);
  join_able("other", 2, {"feddyn"});
  EXPECT_TRUE(did<BeginRound>().empty());
  join_able("x", 3, {"evaluate", "scaffold"});
  join_able("wide", 4, {"scaffold"}, {5});
  EXPECT_TRUE(did<BeginRound>().empty());
  join_able("y", 5, {"scaffold"}, {4});
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  const auto participants = did<BeginRound>()[0].participants;
  ASSERT_EQ(participants.size(), 2U);
  EXPECT_EQ(participants[0].client, "x");
  EXPECT_EQ(participants[1].client, "y");
  ASSERT_FALSE(did<Say>().empty());
  EXPECT_EQ(did<Say>()[0].line,
            "3 of 5 clients cannot take part in this run (old: the run needs scaffold, and it "
            "announced no abilities (an earlier version, or only a preflight); other: it does not "
            "know scaffold; "
            "wide: its rows have another shape)");
  EXPECT_EQ(machine.find_run(RunId(1))->candidates().reach().able, 2U);
}

TEST_F(AbilitiesTest, OfModelsCountOnlyWhereAClientNamesThem) {
  submit();
  join_able("earlier", 1, {"scaffold"});
  join_able("small", 2, {"model-mlp", "scaffold"});
  EXPECT_TRUE(did<BeginRound>().empty());
  join_able("able", 3, {"model-mlp", "model-softmax-regression", "scaffold"});
  ASSERT_EQ(did<BeginRound>().size(), 1U);
  const auto participants = did<BeginRound>()[0].participants;
  ASSERT_EQ(participants.size(), 2U);
  EXPECT_EQ(participants[0].client, "able");
  EXPECT_EQ(participants[1].client, "earlier");
  EXPECT_EQ(did<Say>().at(0).line,
            "1 of 3 clients cannot take part in this run (small: it does not know "
            "model-softmax-regression)");
}

TEST_F(AbilitiesTest, OnlyThoseThatSendSparseVectorsAreAskedForThem) {
  submit();
  join_able("earlier", 1, {"scaffold"});
  join_able("new", 2, {client::kSparseAbility, "scaffold"});
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 2U);
  const auto& earlier = plans[0].second.schema.vectors;
  const auto& asked = plans[1].second.schema.vectors;
  ASSERT_EQ(earlier.size(), 1U);
  EXPECT_EQ(earlier[0].encoding, update::Encoding::kFloat32Delta);
  EXPECT_EQ(asked[0].encoding, update::Encoding::kSparseFloat32Delta);
  // Who is asked for a sparse update may send a dense one. Room is taken for what comes.
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, update::bitmap_bytes(asked[0].elements) + 8}) {
    update::ContributionHead answer = head(plans[1].second);
    if (bytes == 0) answer.vectors = earlier;
    if (bytes > 0) answer.vectors[0].bytes = bytes;
    answer.payload_bytes = update::payload_bytes(answer.vectors);
    hear(2, protocol::UpdateOffer{answer});
    ASSERT_EQ(did<OpenUpload>().size(), 1U);
    EXPECT_EQ(did<OpenUpload>()[0].bytes, answer.payload_bytes);
  }
}

TEST_F(CoordinatorMachineTest, AClientThatFailsEveryTimeIsLeftOutAndNamed) {
  context.job.job.rounds = 9;
  context.job.round.cohort = 3;
  context.job.round.wait_for = 3;
  submit();
  join("a", 1);
  join("b", 2);
  join("c", 3);
  for (Round round = 1; round <= 3; ++round) {
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 3U) << round;
    hear(3, protocol::TaskFailed{plans[2].second.task, "data-mismatch", "other columns"});
    if (round == 3) {
      ASSERT_EQ(did<Say>().size(), 1U);
      EXPECT_EQ(did<Say>()[0].line,
                "c is left out of this run from now on: its last 3 tasks failed (other columns)");
    }
    for (std::size_t i = 0; i < 2; ++i) {
      upload(i + 1, plans[i].second);
      feed(UploadSummed{plans[i].second.task, {}});
    }
    commit();
  }
  EXPECT_EQ(sent<protocol::RoundPlan>().size(), 2U);
}

TEST_F(CoordinatorMachineTest, AFullDiskOfTheCoordinatorLeavesNoClientOut) {
  context.job.job.rounds = 9;
  context.job.round.cohort = 2;
  submit();
  join("a", 1);
  join("b", 2);
  for (Round round = 1; round <= ClientFailures::kInARowMax; ++round) {
    const auto plans = sent<protocol::RoundPlan>();
    ASSERT_EQ(plans.size(), 2U) << round;
    upload(1, plans[0].second);
    feed(UploadSummed{plans[0].second.task, {}});
    upload(2, plans[1].second);
    feed(UploadSummed{plans[1].second.task, retry("disk-full", "no space left")});
    commit();
  }
  EXPECT_EQ(sent<protocol::RoundPlan>().size(), 2U);
}

TEST_F(CoordinatorMachineTest, AClientThatCannotDoATaskIsNotAskedAgain) {
  open_round();
  hear(1, protocol::TaskFailed{plan_a.task, "unknown-strategy", "x", true});
  EXPECT_NO_FATAL_FAILURE(upload(2, plan_b));
  feed(UploadSummed{plan_b.task, {}});
  commit();
  ASSERT_EQ(sent<protocol::RoundPlan>().size(), 1U);
  EXPECT_EQ(sent<protocol::RoundPlan>()[0].first, SessionId(2));
}

TEST_F(CoordinatorMachineTest, OneSuccessForgivesFailuresBefore) {
  ClientFailures failures;
  EXPECT_FALSE(failures.failed("a", "1"));
  EXPECT_FALSE(failures.failed("a", "2"));
  failures.succeeded("a");
  EXPECT_FALSE(failures.failed("a", "3"));
  EXPECT_FALSE(failures.left_out("a"));
  EXPECT_FALSE(failures.failed("a", "4"));
  EXPECT_TRUE(failures.failed("a", "5\n"));
  EXPECT_TRUE(failures.left_out("a"));
  EXPECT_EQ(*failures.why_left_out("a"), "5?");
  EXPECT_FALSE(failures.failed("a", std::string(300, '6'))) << "said once";
  EXPECT_EQ(*failures.why_left_out("a"), std::string(200, '6') + "...");
  EXPECT_TRUE(failures.failed("b", "7", true));
}

// --- inputs beside the model --------------------------------------------------------------------

TEST_F(CoordinatorMachineTest, InputsAreSentWhenAsked) {
  RunStart start = start_of(1);
  const SharedBytes control = SharedBytes::own(Bytes(30, std::byte{1}));
  start.at.inputs = {{{"control", sha256(control.view()), control.size()}, control}};
  feed(RunSubmitted{start});
  join("a", 1);
  join("b", 2);
  const auto plan = sent<protocol::RoundPlan>().at(0).second;
  ASSERT_EQ(plan.inputs.size(), 1U);
  EXPECT_EQ(plan.inputs[0].name, "control");
  hear(1, protocol::ModelRequest{plan.task, 0, 1000, 1});
  const auto chunks = sent<protocol::Chunk>();
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[1].second.input, 1U);
  EXPECT_EQ(chunks[1].second.offset, 20U);
  hear(1, protocol::ModelRequest{plan.task, 0, 1000, 2});
  EXPECT_EQ(closed_because(), "bad-message");
}

TEST_F(CoordinatorMachineTest, WithUniformWeightsEveryClientCountsOne) {
  context.job.aggregation.weight = "uniform";
  open_round();
  EXPECT_NO_FATAL_FAILURE(upload(1, plan_a));
  EXPECT_EQ(did<SumUpload>()[0].head.weight, 1);
}

TEST_F(CoordinatorMachineTest, AScalarThatTheTaskAskedForMustCome) {
  open_round();
  auto bare = head(plan_a);
  bare.scalars.clear();
  hear(1, protocol::UpdateOffer{bare});
  ASSERT_EQ(sent<protocol::TaskEnded>().size(), 1U);
  EXPECT_EQ(sent<protocol::TaskEnded>()[0].second.code, "missing-scalar");
}

}  // namespace
}  // namespace starling::coordinator
