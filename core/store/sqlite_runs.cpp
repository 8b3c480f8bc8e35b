// SPDX-License-Identifier: Apache-2.0
// Runs, their models and their logs of the SqliteStore.
#include <algorithm>
#include <limits>

#include "core/store/sqlite_store_impl.h"

namespace starling::store {
namespace {

Result<Run> read_run(Query& query) {
  Run run;
  std::optional<std::string> submit_token;
  STARLING_TRY(query.into(run.id, run.name, run.state, run.seed, submit_token, run.job,
                          run.submitted, run.started, run.ended, run.error_code, run.error,
                          run.stop_requested, run.settings, run.initial_sha256));
  run.submit_token = submit_token.value_or("");
  return run;
}

Result<ModelRecord> read_model(Query& query) {
  ModelRecord model;
  std::optional<Sha256Digest> state;
  std::optional<std::uint64_t> state_bytes;
  STARLING_TRY(query.into(model.round, model.sha256, state, state_bytes, model.evaluation.loss,
                          model.evaluation.accuracy, model.federated.loss,
                          model.federated.accuracy));
  if (state && state_bytes) model.state = StateFile{*state, *state_bytes};
  return model;
}

constexpr std::string_view kModels =
    "SELECT m.round, m.sha256, m.state_sha256, m.state_bytes, t.eval_loss, "
    "t.eval_accuracy, e.eval_loss, e.eval_accuracy FROM models m "
    "LEFT JOIN phases t ON t.run = m.run AND t.kind = 'train' AND t.round = m.round "
    "AND t.state = 'committed' "
    "LEFT JOIN phases e ON e.run = m.run AND e.kind = 'evaluate' AND e.round = m.round "
    "AND e.state = 'committed' WHERE m.run = ? AND m.round BETWEEN ? AND ? ORDER BY m.round";

struct RoundMetric {
  Round round = 0;
  PhaseKind kind = PhaseKind::kTrain;
  std::string name;
  double value = 0;
};

Result<RoundMetric> read_round_metric(Query& query) {
  RoundMetric metric;
  STARLING_TRY(query.into(metric.round, metric.kind, metric.name, metric.value));
  return metric;
}

constexpr std::string_view kMetricsOfModels =
    "SELECT p.round, p.kind, m.name, m.value FROM phases p JOIN metrics m ON m.phase = p.id "
    "WHERE p.run = ? AND p.kind IN ('train', 'evaluate') AND p.round BETWEEN ? AND ? "
    "AND p.state = 'committed'";

Result<LogLine> read_log_line(Query& query) {
  LogLine line;
  STARLING_TRY(query.into(line.sequence, line.time, line.text));
  return line;
}

Result<std::uint64_t> read_number(Query& query) {
  std::uint64_t number = 0;
  STARLING_TRY(query.into(number));
  return number;
}

}  // namespace

Result<RunId> SqliteStore::submit_run(const NewRun& run, WallTime now) {
  return database_->transact(Durability::kFull, [&]() -> Result<RunId> {
    std::optional<std::string> submit_token;
    if (!run.submit_token.empty()) submit_token = run.submit_token;
    STARLING_ASSIGN(
        const std::optional<Run> known,
        database_->first("SELECT * FROM runs WHERE submit_token = ?", read_run, submit_token));
    if (known) {
      STARLING_TRY(rules::same_submission(*known, run));
      return known->id;
    }
    STARLING_TRY(database_->execute(
        "INSERT INTO runs(name, state, seed, submit_token, job, submitted, "
        "initial_sha256) VALUES(?, ?, ?, ?, ?, ?, ?)",
        run.name, RunState::kPending, run.seed, submit_token, run.job, now, run.initial_sha256));
    return RunId(static_cast<std::uint64_t>(database_->last_row_id()));
  });
}

Result<std::optional<Run>> SqliteStore::find_run(RunId id) {
  return database_->first("SELECT * FROM runs WHERE id = ?", read_run, id);
}

Result<std::vector<Run>> SqliteStore::runs() {
  return database_->all("SELECT * FROM runs ORDER BY id", read_run);
}

Result<std::vector<Run>> SqliteStore::runs(RunState state) {
  return database_->all("SELECT * FROM runs WHERE state = ? ORDER BY id", read_run, state);
}

Result<Run> SqliteStore::run_of(RunId id) {
  STARLING_ASSIGN(std::optional<Run> run, find_run(id));
  if (!run) return rules::run_unknown(id);
  return *std::move(run);
}

Result<void> SqliteStore::insert_model(RunId run, const ModelRecord& model) {
  std::optional<Sha256Digest> state;
  std::optional<std::uint64_t> state_bytes;
  if (model.state) {
    state = model.state->sha256;
    state_bytes = model.state->bytes;
  }
  // The columns `file` and `bytes` are of earlier versions, which named the files in the database.
  return database_->execute("INSERT INTO models VALUES(?, ?, ?, '', 0, ?, ?)", run, model.round,
                            model.sha256, state, state_bytes);
}

Result<void> SqliteStore::record_initial(RunId id, const Sha256Digest& sha256) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const Run run, run_of(id));
    STARLING_TRY(rules::may_start(run));
    return database_->execute("UPDATE runs SET initial_sha256 = ? WHERE id = ?", sha256, id);
  });
}

Result<void> SqliteStore::start_run(RunId id, const ModelRecord& initial, std::string_view settings,
                                    WallTime now) {
  STARLING_CHECK(initial.round == 0);
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const Run run, run_of(id));
    STARLING_TRY(rules::may_start(run));
    STARLING_TRY(
        database_->execute("UPDATE runs SET state = ?, started = ?, settings = ? WHERE id = ?",
                           RunState::kRunning, now, settings, id));
    return insert_model(id, initial);
  });
}

Result<void> SqliteStore::end_run(RunId id, const RunEnd& end, WallTime now) {
  STARLING_TRY(abandon_open_attempt(id, rules::run_ended(end.state)));
  return database_->execute(
      "UPDATE runs SET state = ?, ended = ?, error_code = ?, error = ? WHERE id = ?", end.state,
      now, end.error_code, end.error, id);
}

Result<RunState> SqliteStore::request_stop(RunId id, WallTime now) {
  return database_->transact(Durability::kFull, [&]() -> Result<RunState> {
    STARLING_ASSIGN(const Run run, run_of(id));
    if (is_finished(run.state)) return run.state;
    STARLING_TRY(database_->execute("UPDATE runs SET stop_requested = 1 WHERE id = ?", id));
    if (run.state == RunState::kRunning) return run.state;
    STARLING_TRY(end_run(id, {RunState::kStopped, "", ""}, now));
    return RunState::kStopped;
  });
}

Result<void> SqliteStore::finish_run(RunId id, const RunEnd& end, WallTime now) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const Run run, run_of(id));
    STARLING_TRY(rules::may_finish(run, end));
    return end_run(id, end, now);
  });
}

Result<std::vector<ModelRecord>> SqliteStore::models(RunId run) {
  STARLING_TRY(run_of(run));
  return models_between(run, 0, std::numeric_limits<Round>::max());
}

Result<std::vector<ModelRecord>> SqliteStore::models_between(RunId run, Round first, Round last) {
  STARLING_ASSIGN(std::vector<ModelRecord> models,
                  database_->all(kModels, read_model, run, first, last));
  STARLING_ASSIGN(const auto metrics,
                  database_->all(kMetricsOfModels, read_round_metric, run, first, last));
  for (const auto& [round, kind, name, value] : metrics) {
    const auto model = std::ranges::lower_bound(models, round, {}, &ModelRecord::round);
    if (model == models.end() || model->round != round) continue;
    auto& evaluation = kind == PhaseKind::kTrain ? model->evaluation : model->federated;
    evaluation.metrics[name] = value;
  }
  return models;
}

Result<std::optional<ModelRecord>> SqliteStore::find_model(RunId run, Round round) {
  STARLING_ASSIGN(std::vector<ModelRecord> models, models_between(run, round, round));
  if (models.empty()) return std::optional<ModelRecord>();
  return std::optional(std::move(models.front()));
}

Result<Round> SqliteStore::last_round(RunId run) {
  STARLING_ASSIGN(const auto last,
                  database_->first("SELECT coalesce(max(round), 0) FROM models WHERE run = ?",
                                   read_number, run));
  return static_cast<Round>(last.value_or(0));
}

Result<void> SqliteStore::append_log(RunId run, std::span<const std::string> lines, WallTime now) {
  return database_->transact(Durability::kRelaxed, [&]() -> Result<void> {
    STARLING_TRY(run_of(run));
    STARLING_ASSIGN(std::uint64_t sequence, log_length(run));
    for (const std::string& line : lines) {
      STARLING_TRY(
          database_->execute("INSERT INTO run_log VALUES(?, ?, ?, ?)", run, ++sequence, now, line));
    }
    return {};
  });
}

Result<std::uint64_t> SqliteStore::log_length(RunId run) {
  STARLING_ASSIGN(const auto last,
                  database_->first("SELECT coalesce(max(sequence), 0) FROM run_log WHERE run = ?",
                                   read_number, run));
  return last.value_or(0);
}

Result<std::vector<LogLine>> SqliteStore::log_lines(RunId run, std::uint64_t first,
                                                    std::size_t count_max) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  STARLING_TRY(run_of(run));
  return database_->all(
      "SELECT sequence, time, line FROM run_log WHERE run = ? AND sequence >= ? "
      "ORDER BY sequence LIMIT ?",
      read_log_line, run, std::min(first, kLargest), std::min<std::uint64_t>(count_max, kLargest));
}

}  // namespace starling::store
