// SPDX-License-Identifier: Apache-2.0
// Attempts at rounds of the SqliteStore: cohorts, contributions, failures, tasks.
#include "core/store/sqlite_store_impl.h"

namespace starling::store {
namespace {

// The columns of RoundRecord that are not lists.
constexpr std::string_view kRoundsFrom =
    "SELECT a.run, a.round, a.attempt, a.state, a.base_model, a.started, a.train_loss, "
    "a.eval_loss, a.eval_accuracy, a.seconds, a.bytes_in, a.bytes_out, m.sha256, a.abandon_code, "
    "a.abandon_reason FROM attempts a LEFT JOIN models m ON m.run = a.run AND m.round = a.round "
    "AND a.state = 'committed' WHERE a.run = ? AND a.round >= ? ORDER BY a.round, a.attempt";
constexpr std::string_view kOpenRound =
    "SELECT run, round, attempt, state, base_model, started, train_loss, eval_loss, "
    "eval_accuracy, seconds, bytes_in, bytes_out, NULL, abandon_code, abandon_reason "
    "FROM attempts WHERE run = ? AND state = 'open'";

Result<CohortMember> read_member(Query& query) {
  CohortMember member;
  STARLING_TRY(query.into(member.client, member.task));
  return member;
}

Result<Contribution> read_contribution(Query& query) {
  Contribution contribution;
  STARLING_TRY(
      query.into(contribution.client, contribution.task, contribution.weight, contribution.norm));
  return contribution;
}

Result<Failure> read_failure(Query& query) {
  Failure failure;
  STARLING_TRY(query.into(failure.client, failure.code, failure.reason, failure.bytes_in,
                          failure.bytes_out));
  return failure;
}

Result<TaskRecord> read_task(Query& query) {
  TaskRecord task;
  STARLING_TRY(query.into(task.id, task.attempt.run, task.attempt.round, task.attempt.attempt,
                          task.client, task.outcome));
  return task;
}

Result<TaskEnd> read_task_end(Query& query) {
  TaskEnd end;
  TaskRecord& task = end.task;
  STARLING_TRY(query.into(task.id, task.attempt.run, task.attempt.round, task.attempt.attempt,
                          task.client, task.outcome, end.run, end.model));
  return end;
}

Result<AttemptKey> read_key(Query& query) {
  AttemptKey key;
  STARLING_TRY(query.into(key.run, key.round, key.attempt));
  return key;
}

Result<RoundState> read_state(Query& query) {
  RoundState state{};
  STARLING_TRY(query.into(state));
  return state;
}

Result<Attempt> read_attempt_number(Query& query) {
  Attempt attempt = 0;
  STARLING_TRY(query.into(attempt));
  return attempt;
}

struct LastModel {
  Round round;
  Sha256Digest sha256;
};

Result<LastModel> read_last_model(Query& query) {
  LastModel last{};
  STARLING_TRY(query.into(last.round, last.sha256));
  return last;
}

}  // namespace

Result<rules::Progress> SqliteStore::progress_of(RunId run) {
  rules::Progress progress;
  STARLING_ASSIGN(const Run stored, run_of(run));
  progress.run = stored.state;
  STARLING_ASSIGN(const auto last,
                  database_->first("SELECT round, sha256 FROM models WHERE run = ? "
                                   "ORDER BY round DESC LIMIT 1",
                                   read_last_model, run));
  if (last) {
    progress.last_round = last->round;
    progress.last_model = last->sha256;
  }
  STARLING_ASSIGN(const auto open, database_->first("SELECT run, round, attempt FROM attempts "
                                                    "WHERE run = ? AND state = 'open'",
                                                    read_key, run));
  progress.attempt_open = open.has_value();
  STARLING_ASSIGN(const auto attempts,
                  database_->first("SELECT coalesce(max(attempt), 0) FROM attempts "
                                   "WHERE run = ? AND round = ?",
                                   read_attempt_number, run, progress.last_round + 1));
  progress.last_attempt = attempts.value_or(0);
  return progress;
}

Result<void> SqliteStore::insert_attempt(const NewAttempt& attempt) {
  const AttemptKey& key = attempt.key;
  STARLING_TRY(database_->execute(
      "INSERT INTO attempts(run, round, attempt, state, base_model, started) "
      "VALUES(?, ?, ?, ?, ?, ?)",
      key.run, key.round, key.attempt, RoundState::kOpen, attempt.base_model, attempt.started));
  for (std::size_t i = 0; i < attempt.cohort.size(); ++i) {
    const CohortMember& member = attempt.cohort[i];
    STARLING_TRY(database_->execute(
        "INSERT INTO tasks VALUES(?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", member.task,
        key.run, key.round, key.attempt, i, member.client, TaskOutcome::kOpen));
    if (database_->changes() == 0) return rules::task_exists(member.task);
  }
  return {};
}

Result<void> SqliteStore::open_attempt(const NewAttempt& attempt) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const rules::Progress progress, progress_of(attempt.key.run));
    STARLING_TRY(rules::may_open(attempt, progress));
    return insert_attempt(attempt);
  });
}

Result<void> SqliteStore::insert_result_rows(const AttemptKey& key, const AttemptResult& result) {
  for (std::size_t i = 0; i < result.contributions.size(); ++i) {
    const Contribution& contribution = result.contributions[i];
    STARLING_TRY(database_->execute("INSERT INTO contributions VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                                    key.run, key.round, key.attempt, i, contribution.client,
                                    contribution.task, contribution.weight, contribution.norm));
  }
  for (std::size_t i = 0; i < result.failures.size(); ++i) {
    const Failure& failure = result.failures[i];
    STARLING_TRY(database_->execute(
        "INSERT INTO failures VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", key.run, key.round, key.attempt,
        i, failure.client, failure.code, failure.reason, failure.bytes_in, failure.bytes_out));
  }
  return {};
}

Result<void> SqliteStore::close_attempt(const AttemptKey& key, const AttemptResult& result,
                                        RoundState state, const std::optional<Abandonment>& why) {
  STARLING_TRY(run_of(key.run));
  STARLING_ASSIGN(const std::optional<RoundState> found,
                  database_->first("SELECT state FROM attempts "
                                   "WHERE run = ? AND round = ? AND attempt = ?",
                                   read_state, key.run, key.round, key.attempt));
  STARLING_TRY(rules::may_close(key, found));
  STARLING_TRY(rules::check_contributions(key, result, [&](TaskId id) { return find_task(id); }));
  const AttemptResult stored = rules::normalized(result);
  std::optional<std::string> code;
  std::optional<std::string> reason;
  if (why) {
    code = why->code;
    reason = why->reason;
  }
  STARLING_TRY(database_->execute(
      "UPDATE attempts SET state = ?, train_loss = ?, eval_loss = ?, eval_accuracy = ?, "
      "seconds = ?, bytes_in = ?, bytes_out = ?, abandon_code = ?, abandon_reason = ? "
      "WHERE run = ? AND round = ? AND attempt = ?",
      state, stored.train_loss, stored.evaluation.loss, stored.evaluation.accuracy, stored.seconds,
      stored.bytes_in, stored.bytes_out, code, reason, key.run, key.round, key.attempt));
  return insert_result_rows(key, stored);
}

Result<void> SqliteStore::settle_tasks(const AttemptKey& key, TaskOutcome outcome) {
  return database_->execute(
      "UPDATE tasks SET outcome = ? WHERE run = ? AND round = ? AND attempt = ?", outcome, key.run,
      key.round, key.attempt);
}

// The tasks that the contributions name, and the contributors' tasks of this attempt where they
// answered one of an earlier attempt.
Result<void> SqliteStore::settle_contributed(const AttemptKey& key) {
  STARLING_TRY(
      database_->execute("UPDATE tasks SET outcome = ? WHERE id IN (SELECT task FROM contributions "
                         "WHERE run = ? AND round = ? AND attempt = ?)",
                         TaskOutcome::kCommitted, key.run, key.round, key.attempt));
  return database_->execute(
      "UPDATE tasks SET outcome = ?1 WHERE run = ?2 AND round = ?3 AND attempt = ?4 AND client IN "
      "(SELECT client FROM contributions WHERE run = ?2 AND round = ?3 AND attempt = ?4)",
      TaskOutcome::kCommitted, key.run, key.round, key.attempt);
}

Result<void> SqliteStore::commit_attempt(const AttemptKey& key, const AttemptResult& result,
                                         const ModelRecord& model) {
  STARLING_CHECK(model.round == key.round);
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_TRY(close_attempt(key, result, RoundState::kCommitted, std::nullopt));
    STARLING_TRY(insert_model(key.run, model));
    STARLING_TRY(settle_tasks(key, TaskOutcome::kExpired));
    return settle_contributed(key);
  });
}

Result<void> SqliteStore::abandon_attempt(const AttemptKey& key, const AttemptResult& result,
                                          const Abandonment& why) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_TRY(close_attempt(key, result, RoundState::kAbandoned, why));
    return settle_tasks(key, TaskOutcome::kAbandoned);
  });
}

Result<void> SqliteStore::abandon_open_attempt(RunId run, const Abandonment& why) {
  STARLING_ASSIGN(const std::optional<AttemptKey> open,
                  database_->first("SELECT run, round, attempt FROM attempts "
                                   "WHERE run = ? AND state = 'open'",
                                   read_key, run));
  if (!open) return {};
  STARLING_TRY(database_->execute(
      "UPDATE attempts SET state = ?, abandon_code = ?, abandon_reason = ? "
      "WHERE run = ? AND round = ? AND attempt = ?",
      RoundState::kAbandoned, why.code, why.reason, open->run, open->round, open->attempt));
  return settle_tasks(*open, TaskOutcome::kAbandoned);
}

Result<void> SqliteStore::record_traffic(const AttemptKey& key, std::uint64_t bytes_in,
                                         std::uint64_t bytes_out) {
  return database_->transact(Durability::kRelaxed, [&]() -> Result<void> {
    STARLING_TRY(run_of(key.run));
    return database_->execute(
        "UPDATE attempts SET bytes_in = ?, bytes_out = ? "
        "WHERE run = ? AND round = ? AND attempt = ? AND state = 'open'",
        bytes_in, bytes_out, key.run, key.round, key.attempt);
  });
}

Result<void> SqliteStore::record_evaluation(RunId run, Round round, const Evaluation& evaluation) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_TRY(run_of(run));
    const Evaluation stored = rules::normalized(evaluation);
    STARLING_TRY(
        database_->execute("UPDATE attempts SET eval_loss = ?, eval_accuracy = ? "
                           "WHERE run = ? AND round = ? AND state = 'committed'",
                           stored.loss, stored.accuracy, run, round));
    if (database_->changes() == 0) return rules::round_unknown(run, round);
    return {};
  });
}

Result<void> SqliteStore::withdraw_round(RunId run, Round round, const Abandonment& why) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const rules::Progress progress, progress_of(run));
    STARLING_TRY(rules::may_withdraw(run, round, progress.last_round));
    STARLING_TRY(abandon_open_attempt(run, rules::base_withdrawn(round)));
    STARLING_TRY(database_->execute(
        "UPDATE tasks SET outcome = ? WHERE run = ? AND round = ? AND outcome IN (?, ?)",
        TaskOutcome::kAbandoned, run, round, TaskOutcome::kCommitted, TaskOutcome::kExpired));
    STARLING_TRY(
        database_->execute("UPDATE attempts SET state = ?, abandon_code = ?, abandon_reason = ? "
                           "WHERE run = ? AND round = ? AND state = 'committed'",
                           RoundState::kAbandoned, why.code, why.reason, run, round));
    return database_->execute("DELETE FROM models WHERE run = ? AND round = ?", run, round);
  });
}

Result<void> SqliteStore::read_round_rows(RoundRecord& record) {
  const AttemptKey& key = record.key;
  STARLING_ASSIGN(record.cohort,
                  database_->all("SELECT client, id FROM tasks WHERE run = ? AND round = ? "
                                 "AND attempt = ? ORDER BY position",
                                 read_member, key.run, key.round, key.attempt));
  STARLING_ASSIGN(
      record.result.contributions,
      database_->all("SELECT client, task, weight, norm FROM contributions WHERE run = ? "
                     "AND round = ? AND attempt = ? ORDER BY position",
                     read_contribution, key.run, key.round, key.attempt));
  STARLING_ASSIGN(record.result.failures,
                  database_->all("SELECT client, code, reason, bytes_in, bytes_out FROM failures "
                                 "WHERE run = ? AND round = ? AND attempt = ? ORDER BY position",
                                 read_failure, key.run, key.round, key.attempt));
  return {};
}

Result<RoundRecord> SqliteStore::read_round(Query& query) {
  RoundRecord record;
  std::optional<std::string> code;
  std::optional<std::string> reason;
  STARLING_TRY(query.into(record.key.run, record.key.round, record.key.attempt, record.state,
                          record.base_model, record.started, record.result.train_loss,
                          record.result.evaluation.loss, record.result.evaluation.accuracy,
                          record.result.seconds, record.result.bytes_in, record.result.bytes_out,
                          record.model, code, reason));
  if (code && reason) record.abandonment = Abandonment{*std::move(code), *std::move(reason)};
  STARLING_TRY(read_round_rows(record));
  return record;
}

Result<std::vector<RoundRecord>> SqliteStore::rounds(RunId run, Round first) {
  STARLING_TRY(run_of(run));
  return database_->all(
      kRoundsFrom, [&](Query& query) { return read_round(query); }, run, first);
}

Result<std::optional<RoundRecord>> SqliteStore::find_open_attempt(RunId run) {
  STARLING_TRY(run_of(run));
  return database_->first(
      kOpenRound, [&](Query& query) { return read_round(query); }, run);
}

Result<std::optional<TaskRecord>> SqliteStore::find_task(TaskId id) {
  return database_->first("SELECT id, run, round, attempt, client, outcome FROM tasks WHERE id = ?",
                          read_task, id);
}

// A committed round is one that has a model: three rows, each found by its primary key.
Result<std::optional<TaskEnd>> SqliteStore::find_task_end(TaskId id) {
  return database_->first(
      "SELECT t.id, t.run, t.round, t.attempt, t.client, t.outcome, r.state, m.sha256 FROM tasks t "
      "JOIN runs r ON r.id = t.run LEFT JOIN models m ON m.run = t.run AND m.round = t.round "
      "WHERE t.id = ?",
      read_task_end, id);
}

}  // namespace starling::store
