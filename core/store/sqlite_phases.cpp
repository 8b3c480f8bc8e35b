// SPDX-License-Identifier: Apache-2.0
// Phases of rounds of the SqliteStore: cohorts, contributions, failures, tasks.
#include "core/store/sqlite_store_impl.h"

namespace starling::store {
namespace {

// The columns of RoundRecord that are not lists.
constexpr std::string_view kPhasesFrom =
    "SELECT p.id, p.run, p.round, p.attempt, p.kind, p.state, p.base_model, p.started, "
    "p.population, p.train_loss, p.eval_loss, p.eval_accuracy, p.seconds, p.bytes_in, p.bytes_out, "
    "m.sha256, p.abandon_code, p.abandon_reason FROM phases p LEFT JOIN models m ON m.run = p.run "
    "AND m.round = p.round AND p.kind = 'train' AND p.state = 'committed' "
    "WHERE p.run = ? AND p.kind = ? AND p.round >= ? ORDER BY p.id";
constexpr std::string_view kOpenPhase =
    "SELECT id, run, round, attempt, kind, state, base_model, started, population, train_loss, "
    "eval_loss, eval_accuracy, seconds, bytes_in, bytes_out, NULL, abandon_code, abandon_reason "
    "FROM phases WHERE run = ? AND state = 'open'";

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

Result<std::pair<std::string, double>> read_metric(Query& query) {
  std::pair<std::string, double> metric;
  STARLING_TRY(query.into(metric.first, metric.second));
  return metric;
}

Result<TaskRecord> read_task(Query& query) {
  TaskRecord task;
  AttemptKey& key = task.attempt;
  STARLING_TRY(
      query.into(task.id, key.run, key.round, key.attempt, key.kind, task.client, task.outcome));
  return task;
}

Result<TaskEnd> read_task_end(Query& query) {
  TaskEnd end;
  TaskRecord& task = end.task;
  AttemptKey& key = task.attempt;
  STARLING_TRY(query.into(task.id, key.run, key.round, key.attempt, key.kind, task.client,
                          task.outcome, end.run, end.model, end.passed));
  return end;
}

Result<PhaseId> read_phase_id(Query& query) {
  PhaseId phase{};
  STARLING_TRY(query.into(phase));
  return phase;
}

struct PhaseState {
  PhaseId id;
  RoundState state;
};

Result<PhaseState> read_phase_state(Query& query) {
  PhaseState phase{};
  STARLING_TRY(query.into(phase.id, phase.state));
  return phase;
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

Result<rules::Progress> SqliteStore::progress_of(RunId run, PhaseKind kind) {
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
  STARLING_ASSIGN(const auto open, open_phase_of(run));
  progress.attempt_open = open.has_value();
  const Round next = rules::next_round(kind, progress.last_round);
  STARLING_ASSIGN(const auto attempts,
                  database_->first("SELECT coalesce(max(attempt), 0) FROM phases "
                                   "WHERE run = ? AND kind = ? AND round = ?",
                                   read_attempt_number, run, kind, next));
  progress.last_attempt = attempts.value_or(0);
  STARLING_ASSIGN(
      const auto evaluated,
      database_->first("SELECT id FROM phases WHERE run = ? AND kind = 'evaluate' AND round = ? "
                       "AND state = 'committed'",
                       read_phase_id, run, progress.last_round));
  progress.evaluated = evaluated.has_value();
  return progress;
}

Result<std::optional<PhaseId>> SqliteStore::open_phase_of(RunId run) {
  return database_->first("SELECT id FROM phases WHERE run = ? AND state = 'open'", read_phase_id,
                          run);
}

Result<void> SqliteStore::insert_attempt(const NewAttempt& attempt) {
  const AttemptKey& key = attempt.key;
  STARLING_TRY(database_->execute(
      "INSERT INTO phases(run, kind, round, attempt, state, base_model, population, started) "
      "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
      key.run, key.kind, key.round, key.attempt, RoundState::kOpen, attempt.base_model,
      attempt.population, attempt.started));
  const PhaseId phase = database_->last_row_id();
  for (std::size_t i = 0; i < attempt.cohort.size(); ++i) {
    const CohortMember& member = attempt.cohort[i];
    STARLING_TRY(
        database_->execute("INSERT INTO tasks VALUES(?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                           member.task, phase, i, member.client, TaskOutcome::kOpen));
    if (database_->changes() == 0) return rules::task_exists(member.task);
  }
  return {};
}

Result<void> SqliteStore::open_attempt(const NewAttempt& attempt) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const rules::Progress progress, progress_of(attempt.key.run, attempt.key.kind));
    STARLING_TRY(rules::may_open(attempt, progress));
    return insert_attempt(attempt);
  });
}

Result<void> SqliteStore::insert_result_rows(PhaseId phase, const AttemptResult& result) {
  for (std::size_t i = 0; i < result.contributions.size(); ++i) {
    const Contribution& contribution = result.contributions[i];
    STARLING_TRY(database_->execute("INSERT INTO contributions VALUES(?, ?, ?, ?, ?, ?)", phase, i,
                                    contribution.client, contribution.task, contribution.weight,
                                    contribution.norm));
  }
  for (std::size_t i = 0; i < result.failures.size(); ++i) {
    const Failure& failure = result.failures[i];
    STARLING_TRY(database_->execute("INSERT INTO failures VALUES(?, ?, ?, ?, ?, ?, ?)", phase, i,
                                    failure.client, failure.code, failure.reason, failure.bytes_in,
                                    failure.bytes_out));
  }
  for (const auto& [name, value] : result.evaluation.metrics) {
    STARLING_TRY(database_->execute("INSERT INTO metrics VALUES(?, ?, ?)", phase, name, value));
  }
  for (const auto& [name, value] : result.train_metrics) {
    STARLING_TRY(
        database_->execute("INSERT INTO train_metrics VALUES(?, ?, ?)", phase, name, value));
  }
  return {};
}

Result<PhaseId> SqliteStore::close_attempt(const AttemptKey& key, const AttemptResult& result,
                                           RoundState state,
                                           const std::optional<Abandonment>& why) {
  STARLING_TRY(run_of(key.run));
  STARLING_ASSIGN(const auto found,
                  database_->first("SELECT id, state FROM phases "
                                   "WHERE run = ? AND kind = ? AND round = ? AND attempt = ?",
                                   read_phase_state, key.run, key.kind, key.round, key.attempt));
  STARLING_TRY(rules::may_close(key, found ? std::optional(found->state) : std::nullopt));
  STARLING_TRY(rules::check_contributions(key, result, [&](TaskId id) { return find_task(id); }));
  const AttemptResult stored = rules::normalized(result);
  std::optional<std::string> code;
  std::optional<std::string> reason;
  if (why) {
    code = why->code;
    reason = why->reason;
  }
  STARLING_TRY(database_->execute(
      "UPDATE phases SET state = ?, train_loss = ?, eval_loss = ?, eval_accuracy = ?, "
      "seconds = ?, bytes_in = ?, bytes_out = ?, abandon_code = ?, abandon_reason = ? WHERE id = ?",
      state, stored.train_loss, stored.evaluation.loss, stored.evaluation.accuracy, stored.seconds,
      stored.bytes_in, stored.bytes_out, code, reason, found->id));
  STARLING_TRY(insert_result_rows(found->id, stored));
  return found->id;
}

Result<void> SqliteStore::settle_tasks(PhaseId phase, TaskOutcome outcome) {
  return database_->execute("UPDATE tasks SET outcome = ? WHERE phase = ?", outcome, phase);
}

// The tasks of the phase, the tasks that the contributions name, and the contributors' tasks of
// this attempt where they answered one of an earlier attempt.
Result<void> SqliteStore::settle_committed(PhaseId phase) {
  STARLING_TRY(settle_tasks(phase, TaskOutcome::kExpired));
  STARLING_TRY(database_->execute(
      "UPDATE tasks SET outcome = ? WHERE id IN (SELECT task FROM contributions WHERE phase = ?)",
      TaskOutcome::kCommitted, phase));
  return database_->execute(
      "UPDATE tasks SET outcome = ?1 WHERE phase = ?2 AND client IN "
      "(SELECT client FROM contributions WHERE phase = ?2)",
      TaskOutcome::kCommitted, phase);
}

Result<void> SqliteStore::commit_attempt(const AttemptKey& key, const AttemptResult& result,
                                         const ModelRecord& model) {
  STARLING_CHECK(key.kind == PhaseKind::kTrain && model.round == key.round);
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const PhaseId phase,
                    close_attempt(key, result, RoundState::kCommitted, std::nullopt));
    STARLING_TRY(insert_model(key.run, model));
    return settle_committed(phase);
  });
}

Result<void> SqliteStore::commit_evaluation(const AttemptKey& key, const AttemptResult& result) {
  STARLING_CHECK(key.kind == PhaseKind::kEvaluate);
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const PhaseId phase,
                    close_attempt(key, result, RoundState::kCommitted, std::nullopt));
    return settle_committed(phase);
  });
}

Result<void> SqliteStore::abandon_attempt(const AttemptKey& key, const AttemptResult& result,
                                          const Abandonment& why) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const PhaseId phase, close_attempt(key, result, RoundState::kAbandoned, why));
    return settle_tasks(phase, TaskOutcome::kAbandoned);
  });
}

Result<void> SqliteStore::abandon_open_attempt(RunId run, const Abandonment& why) {
  STARLING_ASSIGN(const std::optional<PhaseId> open, open_phase_of(run));
  if (!open) return {};
  STARLING_TRY(database_->execute(
      "UPDATE phases SET state = ?, abandon_code = ?, abandon_reason = ? WHERE id = ?",
      RoundState::kAbandoned, why.code, why.reason, *open));
  return settle_tasks(*open, TaskOutcome::kAbandoned);
}

Result<void> SqliteStore::record_traffic(const AttemptKey& key, std::uint64_t bytes_in,
                                         std::uint64_t bytes_out) {
  return database_->transact(Durability::kRelaxed, [&]() -> Result<void> {
    STARLING_TRY(run_of(key.run));
    return database_->execute(
        "UPDATE phases SET bytes_in = ?, bytes_out = ? "
        "WHERE run = ? AND kind = ? AND round = ? AND attempt = ? AND state = 'open'",
        bytes_in, bytes_out, key.run, key.kind, key.round, key.attempt);
  });
}

Result<void> SqliteStore::withdraw_committed(RunId run, PhaseKind kind, Round round,
                                             const Abandonment& why) {
  STARLING_TRY(database_->execute(
      "UPDATE tasks SET outcome = ? WHERE outcome IN (?, ?) AND phase IN "
      "(SELECT id FROM phases WHERE run = ? AND kind = ? AND round = ?)",
      TaskOutcome::kAbandoned, TaskOutcome::kCommitted, TaskOutcome::kExpired, run, kind, round));
  return database_->execute(
      "UPDATE phases SET state = ?, abandon_code = ?, abandon_reason = ? "
      "WHERE run = ? AND kind = ? AND round = ? AND state = 'committed'",
      RoundState::kAbandoned, why.code, why.reason, run, kind, round);
}

Result<void> SqliteStore::withdraw_round(RunId run, Round round, const Abandonment& why) {
  const Abandonment base_lost = rules::base_withdrawn(round);
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const rules::Progress progress, progress_of(run, PhaseKind::kTrain));
    STARLING_TRY(rules::may_withdraw(run, round, progress.last_round));
    STARLING_TRY(abandon_open_attempt(run, base_lost));
    STARLING_TRY(withdraw_committed(run, PhaseKind::kTrain, round, why));
    STARLING_TRY(withdraw_committed(run, PhaseKind::kEvaluate, round, base_lost));
    return database_->execute("DELETE FROM models WHERE run = ? AND round = ?", run, round);
  });
}

Result<void> SqliteStore::read_phase_rows(PhaseId phase, RoundRecord& record) {
  STARLING_ASSIGN(record.cohort,
                  database_->all("SELECT client, id FROM tasks WHERE phase = ? ORDER BY position",
                                 read_member, phase));
  STARLING_ASSIGN(record.result.contributions,
                  database_->all("SELECT client, task, weight, norm FROM contributions "
                                 "WHERE phase = ? ORDER BY position",
                                 read_contribution, phase));
  STARLING_ASSIGN(record.result.failures,
                  database_->all("SELECT client, code, reason, bytes_in, bytes_out FROM failures "
                                 "WHERE phase = ? ORDER BY position",
                                 read_failure, phase));
  STARLING_ASSIGN(
      const auto metrics,
      database_->all("SELECT name, value FROM metrics WHERE phase = ?", read_metric, phase));
  record.result.evaluation.metrics = {metrics.begin(), metrics.end()};
  STARLING_ASSIGN(
      const auto train_metrics,
      database_->all("SELECT name, value FROM train_metrics WHERE phase = ?", read_metric, phase));
  record.result.train_metrics = {train_metrics.begin(), train_metrics.end()};
  return {};
}

Result<RoundRecord> SqliteStore::read_phase(Query& query) {
  PhaseId phase{};
  RoundRecord record;
  AttemptResult& result = record.result;
  std::optional<std::string> code;
  std::optional<std::string> reason;
  STARLING_TRY(query.into(phase, record.key.run, record.key.round, record.key.attempt,
                          record.key.kind, record.state, record.base_model, record.started,
                          record.population, result.train_loss, result.evaluation.loss,
                          result.evaluation.accuracy, result.seconds, result.bytes_in,
                          result.bytes_out, record.model, code, reason));
  if (code && reason) record.abandonment = Abandonment{*std::move(code), *std::move(reason)};
  STARLING_TRY(read_phase_rows(phase, record));
  return record;
}

Result<std::vector<RoundRecord>> SqliteStore::phases(RunId run, PhaseKind kind, Round first) {
  STARLING_TRY(run_of(run));
  return database_->all(
      kPhasesFrom, [&](Query& query) { return read_phase(query); }, run, kind, first);
}

Result<std::vector<RoundRecord>> SqliteStore::rounds(RunId run, Round first) {
  return phases(run, PhaseKind::kTrain, first);
}

Result<std::vector<RoundRecord>> SqliteStore::evaluations(RunId run, Round first) {
  return phases(run, PhaseKind::kEvaluate, first);
}

Result<std::optional<RoundRecord>> SqliteStore::find_open_attempt(RunId run) {
  STARLING_TRY(run_of(run));
  return database_->first(
      kOpenPhase, [&](Query& query) { return read_phase(query); }, run);
}

Result<std::optional<TaskRecord>> SqliteStore::find_task(TaskId id) {
  return database_->first(
      "SELECT t.id, p.run, p.round, p.attempt, p.kind, t.client, t.outcome FROM tasks t "
      "JOIN phases p ON p.id = t.phase WHERE t.id = ?",
      read_task, id);
}

// A few rows, each found by an index. A committed round is one that has a model.
Result<std::optional<TaskEnd>> SqliteStore::find_task_end(TaskId id) {
  return database_->first(
      "SELECT t.id, p.run, p.round, p.attempt, p.kind, t.client, t.outcome, r.state, m.sha256, "
      "p.kind = 'evaluate' AND EXISTS(SELECT 1 FROM phases n WHERE n.run = p.run "
      "AND n.kind = 'train' AND n.round > p.round "
      "AND coalesce(n.abandon_code, '') NOT IN ('model-damaged', 'base-withdrawn')) "
      "FROM tasks t JOIN phases p ON p.id = t.phase JOIN runs r ON r.id = p.run "
      "LEFT JOIN models m ON m.run = p.run AND m.round = p.round AND (p.kind = 'train' OR "
      "EXISTS(SELECT 1 FROM phases c WHERE c.run = p.run AND c.kind = p.kind "
      "AND c.round = p.round AND c.state = 'committed')) WHERE t.id = ?",
      read_task_end, id);
}

}  // namespace starling::store
