// SPDX-License-Identifier: Apache-2.0
// Runs, rounds, tasks and logs.
#include <cmath>
#include <limits>

#include "tests/store/store_fixture.h"

namespace starling::store {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RunsTest : public StoreTest {
 protected:
  void reopen_and_check(RunId id, RunState expected, bool asked) {
    reopen();
    const store::Run run = store().find_run(id).value().value();
    EXPECT_EQ(run.state, expected);
    EXPECT_EQ(run.stop_requested, asked);
    EXPECT_EQ(run.ended.has_value(), is_finished(expected));
  }
};
class RoundsTest : public StoreTest {
 protected:
  TaskOutcome outcome(std::uint64_t task) {
    return store().find_task(TaskId(task)).value()->outcome;
  }
  void commit(RunId run, Round round, std::string_view base, std::string_view made,
              const Evaluation& evaluation = {}) {
    ASSERT_TRUE(store().open_attempt(attempt(run, round, 1, 100 * round, {"a"}, base)));
    ASSERT_TRUE(
        store().commit_attempt({run, round, 1}, {.evaluation = evaluation}, model(round, made)));
  }
  // Evaluates `round`, whose model is `base`, by one client.
  void evaluate(RunId run, Round round, std::uint64_t task, std::string_view base) {
    AttemptResult result;
    result.contributions = {{"a", TaskId(task), 120}};
    result.evaluation = {0.5, 0.875};
    ASSERT_TRUE(store().open_attempt(evaluation(run, round, 1, task, {"a"}, base)));
    ASSERT_TRUE(store().commit_evaluation({run, round, 1, PhaseKind::kEvaluate}, result));
  }
};

const Abandonment kTooFew{"too-few-updates", "1 of 8"};

TEST_F(RunsTest, QueuesInOrderOfSubmission) {
  const std::uint64_t seed = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(store().submit_run({"one", seed, "", "rounds = 1"}, at(1)).value(), RunId(1));
  const NewRun with_file{"two", 2, "", "rounds = 2", digest("a file")};
  EXPECT_EQ(store().submit_run(with_file, at(2)).value(), RunId(2));
  EXPECT_EQ(store().submit_run({"two", 2, "", "rounds = 2"}, at(2)).value(), RunId(3));
  reopen();
  EXPECT_THAT(
      store().runs().value(),
      ElementsAre(Field(&Run::id, RunId(1)), Field(&Run::id, RunId(2)), Field(&Run::id, RunId(3))));
  const store::Run first = store().find_run(RunId(1)).value().value();
  EXPECT_EQ(first.seed, seed);
  EXPECT_EQ(first.name, "one");
  EXPECT_EQ(first.job, "rounds = 1");
  EXPECT_EQ(first.submitted, at(1));
  EXPECT_EQ(first.state, RunState::kPending);
  EXPECT_EQ(store().find_run(RunId(4)).value(), std::nullopt);
  EXPECT_EQ(store().find_run(RunId(0)).value(), std::nullopt);
  EXPECT_EQ(first.settings, "");
  EXPECT_EQ(first.initial_sha256, std::nullopt);
  EXPECT_EQ(store().find_run(RunId(2)).value()->initial_sha256, digest("a file"));
  ASSERT_TRUE(store().start_run(RunId(1), model(0, "m"), R"({"seed":"1"})", at(3)));
  EXPECT_EQ(store().find_run(RunId(1)).value()->settings, R"({"seed":"1"})");
  EXPECT_THAT(store().runs(RunState::kPending).value(), SizeIs(2));
  EXPECT_THAT(store().runs(RunState::kRunning).value(), ElementsAre(Field(&Run::id, RunId(1))));
}

TEST_F(RunsTest, TheInitialModelOfAPendingRunIsRecorded) {
  ASSERT_TRUE(store().submit_run({"one", 1, "", "rounds = 1"}, at(1)));
  ASSERT_TRUE(store().record_initial(RunId(1), digest("made")));
  ASSERT_TRUE(store().record_initial(RunId(1), digest("made again")));
  reopen();
  EXPECT_EQ(store().find_run(RunId(1)).value()->initial_sha256, digest("made again"));
  ASSERT_TRUE(store().start_run(RunId(1), model(0, "m"), "", at(3)));
  EXPECT_EQ(code_of(store().record_initial(RunId(1), digest("late"))), "run-state");
  EXPECT_EQ(code_of(store().record_initial(RunId(2), digest("made"))), "run-unknown");
  EXPECT_EQ(store().find_run(RunId(1)).value()->initial_sha256, digest("made again"));
}

TEST_F(RunsTest, TheSameSubmitTokenIsTheSameRun) {
  const NewRun job{"one", 1, "T", "rounds = 1"};
  ASSERT_EQ(store().submit_run(job, at(1)).value(), RunId(1));
  reopen();
  EXPECT_EQ(store().submit_run(job, at(2)).value(), RunId(1));
  EXPECT_EQ(store().find_run(RunId(1)).value()->submitted, at(1));
  EXPECT_EQ(code_of(store().submit_run({"one", 1, "T", "rounds = 2"}, at(3))),
            "submit-token-reused");
  EXPECT_EQ(code_of(store().submit_run({"one", 2, "T", "rounds = 1"}, at(3))),
            "submit-token-reused");
  EXPECT_EQ(store().submit_run({"one", 1, "U", "rounds = 1"}, at(3)).value(), RunId(2));
}

// Every event in every state.
TEST_F(RunsTest, MovesOnlyForward) {
  const auto in_state = [&](RunState state) {
    const RunId id = store().submit_run({"job", 1, "", ""}, at(0)).value();
    if (state == RunState::kPending) return id;
    EXPECT_TRUE(store().start_run(id, model(0, "m"), "", at(1)));
    if (state == RunState::kRunning) return id;
    EXPECT_TRUE(store().finish_run(id, {state, "code", "sentence"}, at(2)));
    return id;
  };
  for (const RunState from : {RunState::kPending, RunState::kRunning, RunState::kCompleted,
                              RunState::kFailed, RunState::kStopped}) {
    SCOPED_TRACE(to_string(from));
    const bool pending = from == RunState::kPending;
    EXPECT_EQ(code_of(store().start_run(in_state(from), model(0, "m"), "", at(3))),
              pending ? "ok" : "run-state");
    for (const RunState to : {RunState::kCompleted, RunState::kFailed, RunState::kStopped}) {
      EXPECT_EQ(code_of(store().finish_run(in_state(from), {to, "", ""}, at(3))),
                is_finished(from) ? "run-state" : "ok");
    }
    const RunId stopped = in_state(from);
    const RunState expected = pending ? RunState::kStopped : from;
    EXPECT_EQ(store().request_stop(stopped, at(3)).value(), expected);
    EXPECT_EQ(store().request_stop(stopped, at(4)).value(), expected);
    reopen_and_check(stopped, expected, !is_finished(from));
  }
  EXPECT_EQ(code_of(store().request_stop(RunId(999), at(1))), "run-unknown");
  EXPECT_EQ(code_of(store().start_run(RunId(999), model(0, "m"), "", at(1))), "run-unknown");
  EXPECT_EQ(code_of(store().finish_run(RunId(999), {}, at(1))), "run-unknown");
}

TEST_F(RunsTest, RemembersHowItEnded) {
  const RunId id = started_run();
  ASSERT_TRUE(store().finish_run(id, {RunState::kFailed, "no-clients", "none came"}, at(9)));
  const store::Run run = store().find_run(id).value().value();
  EXPECT_EQ(run.state, RunState::kFailed);
  EXPECT_EQ(run.started, at(1));
  EXPECT_EQ(run.ended, at(9));
  EXPECT_EQ(run.error_code, "no-clients");
  EXPECT_EQ(run.error, "none came");
}

TEST_F(RunsTest, KeepsItsLog) {
  const RunId id = started_run();
  const RunId other = started_run();
  EXPECT_THAT(store().log_lines(id, 1, 10).value(), IsEmpty());
  ASSERT_TRUE(store().append_log(id, std::vector<std::string>{"one", "two"}, at(1)));
  ASSERT_TRUE(store().append_log(other, std::vector<std::string>{"elsewhere"}, at(1)));
  reopen();
  ASSERT_TRUE(store().append_log(id, std::vector<std::string>{"", "four"}, at(2)));
  EXPECT_THAT(store().log_lines(id, 0, 100).value(),
              ElementsAre(LogLine{1, at(1), "one"}, LogLine{2, at(1), "two"}, LogLine{3, at(2), ""},
                          LogLine{4, at(2), "four"}));
  EXPECT_THAT(store().log_lines(id, 2, 2).value(),
              ElementsAre(LogLine{2, at(1), "two"}, LogLine{3, at(2), ""}));
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(store().log_lines(id, 4, most).value(), SizeIs(1));
  EXPECT_THAT(store().log_lines(id, 5, 10).value(), IsEmpty());
  EXPECT_THAT(store().log_lines(id, most, most).value(), IsEmpty());
  EXPECT_EQ(code_of(store().append_log(RunId(77), std::vector<std::string>{"x"}, at(1))),
            "run-unknown");
  EXPECT_EQ(code_of(store().log_lines(RunId(77), 1, 1)), "run-unknown");
}

TEST_F(RoundsTest, AnOpenAttemptSurvivesARestart) {
  const RunId run = started_run();
  EXPECT_EQ(store().find_open_attempt(run).value(), std::nullopt);
  const std::uint64_t high = std::uint64_t{1} << 63;  // ids use all 64 bits
  const NewAttempt opened = attempt(run, 1, 1, high, {"b", "a", "c"}, "m0");
  ASSERT_TRUE(store().open_attempt(opened));
  reopen();
  const RoundRecord record = store().find_open_attempt(run).value().value();
  EXPECT_EQ(record.key, opened.key);
  EXPECT_EQ(record.state, RoundState::kOpen);
  EXPECT_EQ(record.cohort, opened.cohort);
  EXPECT_EQ(record.base_model, digest("m0"));
  EXPECT_EQ(record.started, at(10));
  EXPECT_EQ(record.result, AttemptResult{});
  EXPECT_EQ(store().find_task(TaskId(high + 1)).value(),
            (TaskRecord{TaskId(high + 1), opened.key, "a", TaskOutcome::kOpen}));
  EXPECT_EQ(store().find_task(TaskId(5)).value(), std::nullopt);
  EXPECT_EQ(code_of(store().find_open_attempt(RunId(99))), "run-unknown");
}

TEST_F(RoundsTest, CommitsEverythingOfARound) {
  const RunId run = started_run();
  ASSERT_TRUE(store().open_attempt(attempt(run, 1, 1, 1, {"a", "b", "c"}, "m0")));
  AttemptResult result;
  result.contributions = {{"c", TaskId(3), 120.5}, {"a", TaskId(1), 1}};
  result.failures = {{"b", "deadline", "no update within 60 s", 2'100'000, 4'800'000}};
  result.train_loss = 0.4127;
  result.evaluation = {0.4385, std::nan("")};
  result.evaluation.metrics = {{"mae", -0.25}, {"recall@10", 1e100}, {"undefined", std::nan("")}};
  result.train_metrics = {{"mae", 0.5}, {"norm", 2}, {"undefined", std::nan("")}};
  result.seconds = 1.93;
  result.bytes_in = std::numeric_limits<std::uint64_t>::max();
  result.bytes_out = 38'400'000;
  ASSERT_TRUE(store().commit_attempt({run, 1, 1}, result, model(1, "m1")));
  reopen();
  EXPECT_EQ(store().find_open_attempt(run).value(), std::nullopt);
  const std::vector<RoundRecord> rounds = store().rounds(run, 1).value();
  ASSERT_THAT(rounds, SizeIs(1));
  result.evaluation.accuracy.reset();  // a NaN is a missing value
  result.evaluation.metrics.erase("undefined");
  result.train_metrics.erase("undefined");
  EXPECT_EQ(rounds[0].state, RoundState::kCommitted);
  EXPECT_EQ(rounds[0].result, result);
  EXPECT_EQ(rounds[0].model, digest("m1"));
  EXPECT_EQ(rounds[0].abandonment, std::nullopt);
  EXPECT_THAT(rounds[0].cohort, SizeIs(3));
  ModelRecord committed = model(1, "m1");
  committed.evaluation = result.evaluation;
  EXPECT_THAT(store().models(run).value(), ElementsAre(model(0, "m0"), committed));
  EXPECT_EQ(outcome(1), TaskOutcome::kCommitted);
  EXPECT_EQ(outcome(2), TaskOutcome::kExpired);
  EXPECT_EQ(outcome(3), TaskOutcome::kCommitted);
}

TEST_F(RoundsTest, TakesAFinishedUpdateOfAnAbandonedAttempt) {
  const RunId run = started_run();
  ASSERT_TRUE(store().open_attempt(attempt(run, 1, 1, 1, {"a", "b"}, "m0")));
  AttemptResult first;
  first.contributions = {{"a", TaskId(1), 5}};
  ASSERT_TRUE(store().abandon_attempt({run, 1, 1}, first, kTooFew));
  EXPECT_EQ(outcome(1), TaskOutcome::kAbandoned);
  EXPECT_EQ(outcome(2), TaskOutcome::kAbandoned);

  ASSERT_TRUE(store().open_attempt(attempt(run, 1, 2, 3, {"a", "c", "d"}, "m0")));
  AttemptResult second;  // a offers its first task again, b was not even asked again
  second.contributions = {{"a", TaskId(1), 5}, {"b", TaskId(2), 6}, {"c", TaskId(4), 7}};
  ASSERT_TRUE(store().commit_attempt({run, 1, 2}, second, model(1, "m1")));
  reopen();
  for (const std::uint64_t task : {1, 2, 3, 4}) EXPECT_EQ(outcome(task), TaskOutcome::kCommitted);
  EXPECT_EQ(outcome(5), TaskOutcome::kExpired);
  const std::vector<RoundRecord> rounds = store().rounds(run, 1).value();
  ASSERT_THAT(rounds, SizeIs(2));
  EXPECT_EQ(rounds[0].state, RoundState::kAbandoned);
  EXPECT_EQ(rounds[0].abandonment, kTooFew);
  EXPECT_EQ(rounds[0].result, first);
  EXPECT_EQ(rounds[0].model, std::nullopt);
  EXPECT_EQ(rounds[1].result, second);
}

TEST_F(RoundsTest, RefusesWhatIsOutOfOrder) {
  const RunId run = store().submit_run({"job", 1, "", ""}, at(0)).value();
  const auto open = [&](Round round, Attempt number, std::uint64_t task, const char* base) {
    return code_of(store().open_attempt(attempt(run, round, number, task, {"a", "b"}, base)));
  };
  EXPECT_EQ(open(1, 1, 1, "m0"), "run-state");
  ASSERT_TRUE(store().start_run(run, model(0, "m0"), "", at(1)));
  EXPECT_EQ(open(2, 1, 1, "m0"), "round-order");
  EXPECT_EQ(open(1, 2, 1, "m0"), "round-order");
  EXPECT_EQ(open(1, 1, 1, "other model"), "round-order");
  EXPECT_EQ(open(1, 1, 0, "m0"), "task-exists") << "0 is no task";
  EXPECT_EQ(open(1, 1, 1, "m0"), "ok");
  EXPECT_EQ(open(1, 1, 3, "m0"), "attempt-open");
  EXPECT_EQ(open(1, 2, 3, "m0"), "attempt-open");
  ASSERT_TRUE(store().abandon_attempt({run, 1, 1}, {}, kTooFew));
  EXPECT_EQ(open(1, 1, 3, "m0"), "round-order");
  EXPECT_EQ(open(1, 2, 2, "m0"), "task-exists");
  EXPECT_EQ(code_of(store().open_attempt(attempt(run, 1, 2, 3, {"a", "a"}, "m0"))),
            "cohort-duplicate");
  EXPECT_EQ(open(1, 2, 3, "m0"), "ok") << "what was refused left nothing behind";
  ASSERT_TRUE(store().commit_attempt({run, 1, 2}, {}, model(1, "m1")));
  EXPECT_EQ(open(1, 3, 5, "m1"), "round-order");
  EXPECT_EQ(open(2, 1, 5, "m0"), "round-order");
  EXPECT_EQ(open(2, 1, 5, "m1"), "ok");
  EXPECT_EQ(code_of(store().open_attempt(attempt(RunId(9), 1, 1, 9, {}, "m0"))), "run-unknown");
}

TEST_F(RoundsTest, ClosesOnlyWhatIsOpen) {
  const RunId run = started_run();
  const auto commit_code = [&](AttemptKey key) {
    return code_of(store().commit_attempt(key, {}, model(key.round, "m")));
  };
  const auto abandon_code = [&](AttemptKey key) {
    return code_of(store().abandon_attempt(key, {}, kTooFew));
  };
  EXPECT_EQ(commit_code({run, 1, 1}), "attempt-closed");
  EXPECT_EQ(abandon_code({run, 1, 1}), "attempt-closed");
  EXPECT_EQ(commit_code({RunId(9), 1, 1}), "run-unknown");
  ASSERT_TRUE(store().open_attempt(attempt(run, 1, 1, 1, {"a"}, "m0")));
  EXPECT_EQ(commit_code({run, 1, 2}), "attempt-closed");
  EXPECT_EQ(abandon_code({run, 1, 1}), "ok");
  EXPECT_EQ(commit_code({run, 1, 1}), "attempt-closed");
  EXPECT_EQ(abandon_code({run, 1, 1}), "attempt-closed");
  ASSERT_TRUE(store().open_attempt(attempt(run, 1, 2, 2, {"a"}, "m0")));
  EXPECT_EQ(commit_code({run, 1, 2}), "ok");
  EXPECT_EQ(commit_code({run, 1, 2}), "attempt-closed");
  EXPECT_EQ(abandon_code({run, 1, 2}), "attempt-closed");
}

TEST_F(RoundsTest, RefusesContributionsThatAnswerNoTask) {
  const RunId run = started_run();
  const RunId other = started_run();
  ASSERT_TRUE(store().open_attempt(attempt(other, 1, 1, 50, {"a"}, "m0")));
  commit(run, 1, "m0", "m1");  // task 100 of a
  ASSERT_TRUE(store().open_attempt(attempt(run, 2, 1, 1, {"a", "b"}, "m1")));
  const auto with = [&](std::vector<Contribution> contributions) {
    AttemptResult result;
    result.contributions = std::move(contributions);
    return code_of(store().commit_attempt({run, 2, 1}, result, model(2, "m2")));
  };
  EXPECT_EQ(with({{"a", TaskId(9), 1}}), "task-mismatch") << "never issued";
  EXPECT_EQ(with({{"a", TaskId(2), 1}}), "task-mismatch") << "of another client";
  EXPECT_EQ(with({{"a", TaskId(100), 1}}), "task-mismatch") << "of another round";
  EXPECT_EQ(with({{"a", TaskId(50), 1}}), "task-mismatch") << "of another run";
  EXPECT_EQ(with({{"a", TaskId(1), 1}, {"a", TaskId(1), 1}}), "task-mismatch") << "twice";
  for (const double weight : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(with({{"a", TaskId(1), weight}}), "weight-range");
  }
  EXPECT_EQ(outcome(1), TaskOutcome::kOpen);
  EXPECT_EQ(with({{"a", TaskId(1), 1}}), "ok");
}

TEST_F(RoundsTest, AFinishedRunLeavesNoOpenAttempt) {
  const RunId run = started_run();
  commit(run, 1, "m0", "m1");
  ASSERT_TRUE(store().open_attempt(attempt(run, 2, 1, 1, {"a"}, "m1")));
  EXPECT_EQ(store().request_stop(run, at(2)).value(), RunState::kRunning);
  EXPECT_TRUE(store().find_open_attempt(run).value().has_value()) << "only asked to";
  ASSERT_TRUE(store().finish_run(run, {RunState::kStopped, "", ""}, at(3)));
  reopen();
  const std::vector<RoundRecord> rounds = store().rounds(run, 2).value();
  ASSERT_THAT(rounds, SizeIs(1));
  EXPECT_EQ(rounds[0].state, RoundState::kAbandoned);
  EXPECT_EQ(rounds[0].abandonment->code, "run-ended");
  EXPECT_EQ(outcome(1), TaskOutcome::kAbandoned);
  EXPECT_THAT(store().models(run).value(), SizeIs(2));
}

TEST_F(RoundsTest, WithdrawsTheLastRoundAndWhatStartedFromIt) {
  const RunId run = started_run();
  commit(run, 1, "m0", "m1");
  commit(run, 2, "m1", "m2");
  ASSERT_TRUE(store().open_attempt(attempt(run, 3, 1, 300, {"a"}, "m2")));
  const Abandonment damaged{"model-damaged", "2.safetensors is missing"};
  EXPECT_EQ(code_of(store().withdraw_round(run, 1, damaged)), "round-order");
  EXPECT_EQ(code_of(store().withdraw_round(run, 3, damaged)), "round-order");
  ASSERT_TRUE(store().withdraw_round(run, 2, damaged));
  reopen();
  EXPECT_EQ(store().find_open_attempt(run).value(), std::nullopt);
  std::vector<RoundRecord> rounds = store().rounds(run, 1).value();
  ASSERT_THAT(rounds, SizeIs(3));
  EXPECT_EQ(rounds[1].abandonment, damaged);
  EXPECT_EQ(rounds[1].model, std::nullopt);
  EXPECT_EQ(rounds[2].abandonment->code, "base-withdrawn");
  EXPECT_EQ(outcome(200), TaskOutcome::kAbandoned);
  EXPECT_EQ(outcome(300), TaskOutcome::kAbandoned);
  EXPECT_THAT(store().models(run).value(), SizeIs(2));

  ASSERT_TRUE(store().open_attempt(attempt(run, 2, 2, 201, {"a"}, "m1")));
  ASSERT_TRUE(store().commit_attempt({run, 2, 2}, {}, model(2, "m2 again")));
  ASSERT_TRUE(store().open_attempt(attempt(run, 3, 2, 301, {"a"}, "m2 again")));
  rounds = store().rounds(run, 2).value();
  EXPECT_THAT(rounds, ElementsAre(Field(&RoundRecord::key, AttemptKey{run, 2, 1}),
                                  Field(&RoundRecord::key, AttemptKey{run, 3, 1}),
                                  Field(&RoundRecord::key, AttemptKey{run, 2, 2}),
                                  Field(&RoundRecord::key, AttemptKey{run, 3, 2})))
      << "in the order of time";
  EXPECT_EQ(rounds[2].model, digest("m2 again"));
}

TEST_F(RoundsTest, AnOpenAttemptKeepsItsTraffic) {
  const RunId run = started_run();
  ASSERT_TRUE(store().open_attempt(attempt(run, 1, 1, 1, {"a"}, "m0")));
  ASSERT_TRUE(store().record_traffic({run, 1, 1}, 5, 800));
  ASSERT_TRUE(store().record_traffic({run, 1, 1}, 7, 900));
  reopen();
  const AttemptResult open = store().find_open_attempt(run).value()->result;
  EXPECT_EQ(open.bytes_in, 7U);
  EXPECT_EQ(open.bytes_out, 900U);
  AttemptResult result;
  result.bytes_out = 1200;
  ASSERT_TRUE(store().commit_attempt({run, 1, 1}, result, model(1, "m1")));
  ASSERT_TRUE(store().record_traffic({run, 1, 1}, 1, 1));
  ASSERT_TRUE(store().record_traffic({run, 2, 1}, 1, 1));
  EXPECT_EQ(store().rounds(run, 1)->at(0).result, result) << "a closed one is left as it is";
  EXPECT_EQ(code_of(store().record_traffic({RunId(9), 1, 1}, 1, 1)), "run-unknown");
  ASSERT_TRUE(store().open_attempt(attempt(run, 2, 1, 2, {"a"}, "m1")));
  ASSERT_TRUE(store().record_traffic({run, 2, 1}, 3, 4));
  ASSERT_TRUE(store().finish_run(run, {RunState::kStopped, "", ""}, at(5)));
  EXPECT_EQ(store().rounds(run, 2)->at(0).result.bytes_out, 4U);
}

TEST_F(RoundsTest, KnowsWhatBecameOfATask) {
  const RunId run = started_run();
  const auto end = [&] { return store().find_task_end(TaskId(100)).value(); };
  EXPECT_EQ(end(), std::nullopt);
  ASSERT_TRUE(store().open_attempt(attempt(run, 1, 1, 100, {"a"}, "m0")));
  const auto task = [&](TaskOutcome outcome) {
    return TaskRecord{TaskId(100), {run, 1, 1}, "a", outcome};
  };
  EXPECT_EQ(end(), (TaskEnd{task(TaskOutcome::kOpen), RunState::kRunning, std::nullopt}));
  AttemptResult result;
  result.contributions = {{"a", TaskId(100), 5}};
  ASSERT_TRUE(store().commit_attempt({run, 1, 1}, result, model(1, "m1")));
  commit(run, 2, "m1", "m2");
  reopen();
  EXPECT_EQ(end(), (TaskEnd{task(TaskOutcome::kCommitted), RunState::kRunning, digest("m1")}));
  ASSERT_TRUE(store().withdraw_round(run, 2, kTooFew));
  ASSERT_TRUE(store().withdraw_round(run, 1, kTooFew));
  EXPECT_EQ(end(), (TaskEnd{task(TaskOutcome::kAbandoned), RunState::kRunning, std::nullopt}));
  ASSERT_TRUE(store().finish_run(run, {RunState::kStopped, "", ""}, at(5)));
  EXPECT_EQ(end(), (TaskEnd{task(TaskOutcome::kAbandoned), RunState::kStopped, std::nullopt}));
}

TEST_F(RoundsTest, KeepsThePopulationAndTheStateOfTheStrategy) {
  const RunId run = store().submit_run({"job", 1, "", ""}, at(0)).value();
  ModelRecord initial = model(0, "m0");
  initial.state = StateFile{digest("s0"), 7};
  ASSERT_TRUE(store().start_run(run, initial, "", at(1)));
  NewAttempt opened = attempt(run, 1, 1, 1, {"a"}, "m0");
  opened.population = 12;
  ASSERT_TRUE(store().open_attempt(opened));
  reopen();
  EXPECT_EQ(store().find_open_attempt(run).value()->population, 12U);
  ModelRecord committed = model(1, "m1");
  committed.state = StateFile{digest("s1"), std::uint64_t{1} << 40};
  ASSERT_TRUE(store().commit_attempt({run, 1, 1}, {}, committed));
  ASSERT_TRUE(store().open_attempt(attempt(run, 2, 1, 2, {"a"}, "m1")));
  ASSERT_TRUE(store().commit_attempt({run, 2, 1}, {}, model(2, "m2")));
  reopen();
  EXPECT_EQ(store().rounds(run, 1)->at(0).population, 12U);
  EXPECT_THAT(store().models(run).value(), ElementsAre(initial, committed, model(2, "m2")));
}

TEST_F(RoundsTest, ClientsEvaluateTheModelOfACommittedRound) {
  const RunId run = started_run();
  commit(run, 1, "m0", "m1", {0.25, 0.75});
  const AttemptKey key{run, 1, 1, PhaseKind::kEvaluate};
  NewAttempt opened = evaluation(run, 1, 1, 7, {"a", "b", "c"}, "m1");
  opened.population = 9;
  ASSERT_TRUE(store().open_attempt(opened));
  ASSERT_TRUE(store().record_traffic(key, 5, 6));
  reopen();
  const RoundRecord open = store().find_open_attempt(run).value().value();
  EXPECT_EQ(open.key, key);
  EXPECT_EQ(open.cohort, opened.cohort);
  EXPECT_EQ(open.result.bytes_out, 6U);
  EXPECT_EQ(store().find_task(TaskId(8)).value(),
            (TaskRecord{TaskId(8), key, "b", TaskOutcome::kOpen}));

  AttemptResult result;
  result.contributions = {{"a", TaskId(7), 120}, {"c", TaskId(9), 30}};
  result.failures = {{"b", "no-data", "it has no rows to evaluate on", 1, 2}};
  result.evaluation = {0.5, 0.875};
  result.seconds = 1.5;
  ASSERT_TRUE(store().commit_evaluation(key, result));
  reopen();
  const std::vector<RoundRecord> rounds = store().rounds(run, 1).value();
  ASSERT_THAT(rounds, SizeIs(1)) << "an evaluation is no attempt at a round";
  EXPECT_EQ(rounds[0].result.evaluation, (Evaluation{0.25, 0.75})) << "the coordinator's own";
  const std::vector<RoundRecord> evaluations = store().evaluations(run, 1).value();
  ASSERT_THAT(evaluations, SizeIs(1));
  EXPECT_EQ(evaluations[0].key, key);
  EXPECT_EQ(evaluations[0].state, RoundState::kCommitted);
  EXPECT_EQ(evaluations[0].result, result);
  EXPECT_EQ(evaluations[0].population, 9U);
  EXPECT_EQ(evaluations[0].model, std::nullopt) << "it makes none";
  const std::vector<ModelRecord> models = store().models(run).value();
  ASSERT_THAT(models, SizeIs(2));
  EXPECT_EQ(models[1].evaluation, (Evaluation{0.25, 0.75}));
  EXPECT_EQ(models[1].federated, (Evaluation{0.5, 0.875}));
  EXPECT_EQ(outcome(7), TaskOutcome::kCommitted);
  EXPECT_EQ(outcome(8), TaskOutcome::kExpired);
  EXPECT_EQ(outcome(9), TaskOutcome::kCommitted);
}

TEST_F(RoundsTest, AnEvaluationIsOfTheLastCommittedRoundAndOnce) {
  const RunId run = started_run();
  std::uint64_t task = 1000;
  const auto open = [&](Round round, Attempt number, const char* base) {
    return code_of(store().open_attempt(evaluation(run, round, number, ++task, {"a"}, base)));
  };
  const auto key = [&](Round round, Attempt number) {
    return AttemptKey{run, round, number, PhaseKind::kEvaluate};
  };
  EXPECT_EQ(open(0, 1, "m0"), "round-order") << "no round made the initial model";
  EXPECT_EQ(open(1, 1, "m0"), "round-order");
  commit(run, 1, "m0", "m1");
  EXPECT_EQ(open(2, 1, "m1"), "round-order");
  EXPECT_EQ(open(1, 2, "m1"), "round-order") << "its attempts are counted apart";
  EXPECT_EQ(open(1, 1, "m0"), "round-order") << "another model";
  ASSERT_TRUE(store().open_attempt(attempt(run, 2, 1, 1, {"a"}, "m1")));
  EXPECT_EQ(open(1, 1, "m1"), "attempt-open");
  ASSERT_TRUE(store().abandon_attempt({run, 2, 1}, {}, kTooFew));
  EXPECT_EQ(open(1, 1, "m1"), "ok");
  EXPECT_EQ(code_of(store().open_attempt(attempt(run, 2, 2, 3, {"a"}, "m1"))), "attempt-open");
  EXPECT_EQ(code_of(store().abandon_attempt({run, 1, 1}, {}, kTooFew)), "attempt-closed")
      << "that is the round's train phase";
  AttemptResult wrong;
  wrong.contributions = {{"a", TaskId(100), 1}};
  EXPECT_EQ(code_of(store().commit_evaluation(key(1, 1), wrong)), "task-mismatch")
      << "an update is no evaluation";
  ASSERT_TRUE(store().abandon_attempt(key(1, 1), {}, kTooFew));
  EXPECT_EQ(code_of(store().commit_evaluation(key(1, 1), {})), "attempt-closed");
  EXPECT_EQ(open(1, 2, "m1"), "ok");
  ASSERT_TRUE(store().commit_evaluation(key(1, 2), {}));
  EXPECT_EQ(open(1, 3, "m1"), "round-evaluated");
  reopen();
  EXPECT_THAT(store().evaluations(run, 1).value(),
              ElementsAre(Field(&RoundRecord::state, RoundState::kAbandoned),
                          Field(&RoundRecord::state, RoundState::kCommitted)));
  EXPECT_THAT(store().evaluations(run, 2).value(), IsEmpty());
  ASSERT_TRUE(store().open_attempt(attempt(run, 2, 2, 3, {"a"}, "m1"))) << "training goes on";
}

TEST_F(RoundsTest, AnEvaluationIsWithdrawnWithItsRound) {
  const RunId run = started_run();
  commit(run, 1, "m0", "m1");
  evaluate(run, 1, 7, "m1");
  commit(run, 2, "m1", "m2");
  ASSERT_TRUE(store().open_attempt(evaluation(run, 2, 1, 8, {"a"}, "m2")));
  const Abandonment damaged{"model-damaged", "2.safetensors is missing"};
  ASSERT_TRUE(store().withdraw_round(run, 2, damaged));
  EXPECT_EQ(outcome(8), TaskOutcome::kAbandoned);
  EXPECT_EQ(store().find_open_attempt(run).value(), std::nullopt);
  EXPECT_EQ(store().evaluations(run, 1)->at(0).state, RoundState::kCommitted) << "that round stays";
  ASSERT_TRUE(store().withdraw_round(run, 1, damaged));
  reopen();
  EXPECT_EQ(outcome(7), TaskOutcome::kAbandoned);
  const std::vector<RoundRecord> evaluations = store().evaluations(run, 1).value();
  ASSERT_THAT(evaluations, SizeIs(2));
  for (const RoundRecord& record : evaluations) {
    EXPECT_EQ(record.state, RoundState::kAbandoned);
    EXPECT_EQ(record.abandonment->code, "base-withdrawn");
  }
  EXPECT_EQ(store().rounds(run, 1)->at(0).abandonment, damaged);
  ASSERT_TRUE(store().open_attempt(attempt(run, 1, 2, 9, {"a"}, "m0")));
  ASSERT_TRUE(store().commit_attempt({run, 1, 2}, {}, model(1, "m1 again")));
  EXPECT_EQ(store().models(run)->at(1).federated, Evaluation{})
      << "the old evaluation is not of the new model";
  EXPECT_EQ(code_of(store().open_attempt(evaluation(run, 1, 2, 10, {"a"}, "m1 again"))), "ok");
}

TEST_F(RoundsTest, AFinishedRunLeavesNoOpenEvaluation) {
  const RunId run = started_run();
  commit(run, 1, "m0", "m1");
  ASSERT_TRUE(store().open_attempt(evaluation(run, 1, 1, 7, {"a"}, "m1")));
  ASSERT_TRUE(store().finish_run(run, {RunState::kStopped, "", ""}, at(3)));
  reopen();
  EXPECT_EQ(store().find_open_attempt(run).value(), std::nullopt);
  EXPECT_EQ(store().evaluations(run, 1)->at(0).abandonment->code, "run-ended");
  EXPECT_EQ(store().rounds(run, 1)->at(0).state, RoundState::kCommitted);
  EXPECT_EQ(outcome(7), TaskOutcome::kAbandoned);
}

TEST_F(RoundsTest, KnowsWhatBecameOfTheTaskOfAnEvaluation) {
  const RunId run = started_run();
  commit(run, 1, "m0", "m1");
  const auto end = [&](std::uint64_t task) { return store().find_task_end(TaskId(task)).value(); };
  ASSERT_TRUE(store().open_attempt(evaluation(run, 1, 1, 7, {"a", "b"}, "m1")));
  EXPECT_EQ(end(7)->model, std::nullopt) << "the round is committed, its evaluation is not";
  EXPECT_FALSE(end(7)->passed);
  ASSERT_TRUE(store().abandon_attempt({run, 1, 1, PhaseKind::kEvaluate}, {}, kTooFew));
  EXPECT_EQ(end(7)->task.outcome, TaskOutcome::kAbandoned);
  EXPECT_FALSE(end(7)->passed) << "it may be evaluated again";
  AttemptResult result;
  result.contributions = {{"a", TaskId(7), 1}};
  ASSERT_TRUE(store().open_attempt(evaluation(run, 1, 2, 9, {"a", "b"}, "m1")));
  ASSERT_TRUE(store().commit_evaluation({run, 1, 2, PhaseKind::kEvaluate}, result));
  EXPECT_EQ(end(7)->model, digest("m1"));
  EXPECT_EQ(end(7)->task.outcome, TaskOutcome::kCommitted);
  EXPECT_EQ(end(10)->task.outcome, TaskOutcome::kExpired);
  commit(run, 2, "m1", "m2");
  ASSERT_TRUE(store().open_attempt(evaluation(run, 2, 1, 11, {"a"}, "m2")));
  ASSERT_TRUE(store().abandon_attempt({run, 2, 1, PhaseKind::kEvaluate}, {}, kTooFew));
  EXPECT_FALSE(end(11)->passed);
  ASSERT_TRUE(store().open_attempt(attempt(run, 3, 1, 12, {"a"}, "m2")));
  EXPECT_TRUE(end(11)->passed) << "the run has gone on from that model";
  EXPECT_EQ(end(11)->model, std::nullopt);
  EXPECT_FALSE(end(12)->passed);
  EXPECT_TRUE(end(7)->passed);
  ASSERT_TRUE(store().withdraw_round(run, 2, {"model-damaged", "a bit flipped"}));
  EXPECT_FALSE(end(7)->passed) << "the run is back at that model";
  EXPECT_FALSE(end(11)->passed);
}

TEST_F(RoundsTest, TheInitialModelCannotBeWithdrawn) {
  const RunId run = started_run();
  EXPECT_EQ(code_of(store().withdraw_round(run, 0, kTooFew)), "round-order");
}

}  // namespace
}  // namespace starling::store
