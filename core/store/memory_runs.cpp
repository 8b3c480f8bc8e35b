// SPDX-License-Identifier: Apache-2.0
// Runs, rounds, tasks and logs of the MemoryStore.
#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "core/base/check.h"
#include "core/store/memory_store_impl.h"
#include "core/store/rules.h"

namespace starling::store {

Result<RunId> MemoryStore::submit_run(const NewRun& run, WallTime now) {
  for (const RunHistory& known : runs_) {
    if (run.submit_token.empty() || known.run.submit_token != run.submit_token) continue;
    STARLING_TRY(rules::same_submission(known.run, run));
    return known.run.id;
  }
  RunHistory history;
  history.run.id = RunId(runs_.size() + 1);
  history.run.name = run.name;
  history.run.seed = run.seed;
  history.run.submit_token = run.submit_token;
  history.run.job = run.job;
  history.run.submitted = now;
  runs_.push_back(std::move(history));
  return runs_.back().run.id;
}

Result<MemoryStore::RunHistory*> MemoryStore::history_of(RunId id) {
  if (id.value() == 0 || id.value() > runs_.size()) return rules::run_unknown(id);
  return &runs_[id.value() - 1];
}

Result<std::optional<Run>> MemoryStore::find_run(RunId id) {
  const Result<RunHistory*> history = history_of(id);
  if (!history) return std::optional<Run>();
  return std::optional<Run>((*history)->run);
}

Result<std::vector<Run>> MemoryStore::runs() {
  std::vector<Run> all;
  for (const RunHistory& history : runs_) all.push_back(history.run);
  return all;
}

Result<std::vector<Run>> MemoryStore::runs(RunState state) {
  std::vector<Run> chosen;
  for (const RunHistory& history : runs_) {
    if (history.run.state == state) chosen.push_back(history.run);
  }
  return chosen;
}

Result<void> MemoryStore::start_run(RunId id, const ModelRecord& initial, WallTime now) {
  STARLING_CHECK(initial.round == 0);
  STARLING_ASSIGN(RunHistory * history, history_of(id));
  STARLING_TRY(rules::may_start(history->run));
  history->run.state = RunState::kRunning;
  history->run.started = now;
  history->models[0] = initial;
  history->models[0].evaluation = {};
  return {};
}

void MemoryStore::end_run(RunHistory& history, const RunEnd& end, WallTime now) {
  if (RoundRecord* open = open_attempt_of(history)) abandon(*open, rules::run_ended(end.state));
  history.run.state = end.state;
  history.run.ended = now;
  history.run.error_code = end.error_code;
  history.run.error = end.error;
}

Result<RunState> MemoryStore::request_stop(RunId id, WallTime now) {
  STARLING_ASSIGN(RunHistory * history, history_of(id));
  if (is_finished(history->run.state)) return history->run.state;
  history->run.stop_requested = true;
  if (history->run.state == RunState::kPending) {
    end_run(*history, {RunState::kStopped, "", ""}, now);
  }
  return history->run.state;
}

Result<void> MemoryStore::finish_run(RunId id, const RunEnd& end, WallTime now) {
  STARLING_ASSIGN(RunHistory * history, history_of(id));
  STARLING_TRY(rules::may_finish(history->run, end));
  end_run(*history, end, now);
  return {};
}

RoundRecord* MemoryStore::open_attempt_of(RunHistory& history) {
  for (auto& [key, record] : history.attempts) {
    if (record.state == RoundState::kOpen) return &record;
  }
  return nullptr;
}

RoundRecord* MemoryStore::committed_attempt_of(RunHistory& history, Round round) {
  const RunId run = history.run.id;
  const auto end = history.attempts.lower_bound({run, round + 1, 0});
  for (auto it = history.attempts.lower_bound({run, round, 0}); it != end; ++it) {
    if (it->second.state == RoundState::kCommitted) return &it->second;
  }
  return nullptr;
}

Result<void> MemoryStore::open_attempt(const NewAttempt& attempt) {
  STARLING_ASSIGN(RunHistory * history, history_of(attempt.key.run));
  rules::Progress progress;
  progress.run = history->run.state;
  progress.attempt_open = open_attempt_of(*history) != nullptr;
  if (!history->models.empty()) {
    progress.last_round = history->models.rbegin()->first;
    progress.last_model = history->models.rbegin()->second.sha256;
  }
  const Round next = progress.last_round + 1;
  const auto after = history->attempts.lower_bound({attempt.key.run, next + 1, 0});
  if (after != history->attempts.begin() && std::prev(after)->first.round == next) {
    progress.last_attempt = std::prev(after)->first.attempt;
  }
  STARLING_TRY(rules::may_open(attempt, progress));
  for (const CohortMember& member : attempt.cohort) {
    if (tasks_.contains(member.task)) return rules::task_exists(member.task);
  }
  for (const CohortMember& member : attempt.cohort) {
    tasks_[member.task] = {member.task, attempt.key, member.client, TaskOutcome::kOpen};
  }
  RoundRecord& record = history->attempts[attempt.key];
  record.key = attempt.key;
  record.cohort = attempt.cohort;
  record.base_model = attempt.base_model;
  record.started = attempt.started;
  return {};
}

Result<RoundRecord*> MemoryStore::closable(const AttemptKey& key, const AttemptResult& result) {
  STARLING_ASSIGN(RunHistory * history, history_of(key.run));
  const auto found = history->attempts.find(key);
  const bool known = found != history->attempts.end();
  STARLING_TRY(rules::may_close(key, known ? std::optional(found->second.state) : std::nullopt));
  STARLING_TRY(rules::check_contributions(key, result, [&](TaskId id) { return find_task(id); }));
  return &found->second;
}

void MemoryStore::settle(const RoundRecord& record, TaskOutcome outcome) {
  for (const CohortMember& member : record.cohort) tasks_.at(member.task).outcome = outcome;
}

void MemoryStore::abandon(RoundRecord& record, const Abandonment& why) {
  record.state = RoundState::kAbandoned;
  record.abandonment = why;
  record.model.reset();
  settle(record, TaskOutcome::kAbandoned);
  for (const Contribution& contribution : record.result.contributions) {
    tasks_.at(contribution.task).outcome = TaskOutcome::kAbandoned;
  }
}

Result<void> MemoryStore::commit_attempt(const AttemptKey& key, const AttemptResult& result,
                                         const ModelRecord& model) {
  STARLING_CHECK(model.round == key.round);
  STARLING_ASSIGN(RoundRecord * record, closable(key, result));
  record->state = RoundState::kCommitted;
  record->result = rules::normalized(result);
  record->model = model.sha256;
  ModelRecord& stored = runs_[key.run.value() - 1].models[key.round];
  stored = model;
  stored.evaluation = record->result.evaluation;
  settle(*record, TaskOutcome::kExpired);
  std::unordered_set<std::string_view> contributors;
  for (const Contribution& contribution : result.contributions) {
    tasks_.at(contribution.task).outcome = TaskOutcome::kCommitted;
    contributors.insert(contribution.client);
  }
  for (const CohortMember& member : record->cohort) {
    if (!contributors.contains(member.client)) continue;
    tasks_.at(member.task).outcome = TaskOutcome::kCommitted;
  }
  return {};
}

Result<void> MemoryStore::abandon_attempt(const AttemptKey& key, const AttemptResult& result,
                                          const Abandonment& why) {
  STARLING_ASSIGN(RoundRecord * record, closable(key, result));
  record->result = rules::normalized(result);
  abandon(*record, why);
  return {};
}

Result<void> MemoryStore::record_traffic(const AttemptKey& key, std::uint64_t bytes_in,
                                         std::uint64_t bytes_out) {
  STARLING_ASSIGN(RunHistory * history, history_of(key.run));
  const auto found = history->attempts.find(key);
  if (found == history->attempts.end() || found->second.state != RoundState::kOpen) return {};
  found->second.result.bytes_in = bytes_in;
  found->second.result.bytes_out = bytes_out;
  return {};
}

Result<void> MemoryStore::record_evaluation(RunId run, Round round, const Evaluation& evaluation) {
  STARLING_ASSIGN(RunHistory * history, history_of(run));
  RoundRecord* record = committed_attempt_of(*history, round);
  if (record == nullptr) return rules::round_unknown(run, round);
  record->result.evaluation = rules::normalized(evaluation);
  history->models.at(round).evaluation = record->result.evaluation;
  return {};
}

Result<void> MemoryStore::withdraw_round(RunId run, Round round, const Abandonment& why) {
  STARLING_ASSIGN(RunHistory * history, history_of(run));
  const Round last = history->models.empty() ? 0 : history->models.rbegin()->first;
  STARLING_TRY(rules::may_withdraw(run, round, last));
  if (RoundRecord* open = open_attempt_of(*history)) abandon(*open, rules::base_withdrawn(round));
  abandon(*committed_attempt_of(*history, round), why);
  history->models.erase(round);
  return {};
}

Result<std::vector<RoundRecord>> MemoryStore::rounds(RunId run, Round first) {
  STARLING_ASSIGN(RunHistory * history, history_of(run));
  std::vector<RoundRecord> chosen;
  for (auto it = history->attempts.lower_bound({run, first, 0}); it != history->attempts.end();
       ++it) {
    chosen.push_back(it->second);
  }
  return chosen;
}

Result<std::optional<RoundRecord>> MemoryStore::find_open_attempt(RunId run) {
  STARLING_ASSIGN(RunHistory * history, history_of(run));
  const RoundRecord* open = open_attempt_of(*history);
  return open == nullptr ? std::nullopt : std::optional<RoundRecord>(*open);
}

Result<std::vector<ModelRecord>> MemoryStore::models(RunId run) {
  STARLING_ASSIGN(RunHistory * history, history_of(run));
  std::vector<ModelRecord> all;
  for (const auto& [round, model] : history->models) all.push_back(model);
  return all;
}

Result<std::optional<TaskRecord>> MemoryStore::find_task(TaskId id) {
  return find_value(tasks_, id);
}

Result<std::optional<TaskEnd>> MemoryStore::find_task_end(TaskId id) {
  const auto task = tasks_.find(id);
  if (task == tasks_.end()) return std::optional<TaskEnd>();
  const RunHistory& history = runs_[task->second.attempt.run.value() - 1];
  TaskEnd end{.task = task->second, .run = history.run.state, .model = std::nullopt};
  const auto model = find_value(history.models, end.task.attempt.round);
  if (model) end.model = model->sha256;
  return std::optional(std::move(end));
}

Result<void> MemoryStore::append_log(RunId run, std::span<const std::string> lines, WallTime now) {
  STARLING_ASSIGN(RunHistory * history, history_of(run));
  for (const std::string& line : lines) {
    history->log.push_back({history->log.size() + 1, now, line});
  }
  return {};
}

Result<std::vector<LogLine>> MemoryStore::log_lines(RunId run, std::uint64_t first,
                                                    std::size_t count_max) {
  STARLING_ASSIGN(RunHistory * history, history_of(run));
  const std::vector<LogLine>& log = history->log;
  const std::size_t begin = std::min<std::uint64_t>(first == 0 ? 0 : first - 1, log.size());
  const std::size_t count = std::min(count_max, log.size() - begin);
  const auto from = log.begin() + static_cast<std::ptrdiff_t>(begin);
  return std::vector<LogLine>(from, from + static_cast<std::ptrdiff_t>(count));
}

}  // namespace starling::store
