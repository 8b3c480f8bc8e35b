// SPDX-License-Identifier: Apache-2.0
// Runs, the phases of their rounds, their models and their logs. What all calls promise, and fail
// with: store.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/store/records.h"

namespace starling::store {

class RunStore {
 public:
  virtual ~RunStore() = default;

  // Runs, in order of id, which is the order of the queue. The same submit token returns the same
  // id, or "submit-token-reused" where name, seed or job differ.
  [[nodiscard]] virtual Result<RunId> submit_run(const NewRun& run, WallTime now) = 0;
  [[nodiscard]] virtual Result<std::optional<Run>> find_run(RunId id) = 0;
  [[nodiscard]] virtual Result<std::vector<Run>> runs() = 0;
  [[nodiscard]] virtual Result<std::vector<Run>> runs(RunState state) = 0;
  // Of the file of the model that a pending run begins with, where its job names none.
  // "run-unknown", "run-state".
  [[nodiscard]] virtual Result<void> record_initial(RunId id, const Sha256Digest& sha256) = 0;
  // pending -> running, with the initial model (round 0). `settings`: what the run computes with,
  // as a text that the store does not read. "run-unknown", "run-state".
  [[nodiscard]] virtual Result<void> start_run(RunId id, const ModelRecord& initial,
                                               std::string_view settings, WallTime now) = 0;
  // pending -> stopped at once; a running run is asked to; a finished one stays as it is. Returns
  // the state after it.
  [[nodiscard]] virtual Result<RunState> request_stop(RunId id, WallTime now) = 0;
  // pending or running -> `end.state`; an open attempt is abandoned with it. "run-state".
  [[nodiscard]] virtual Result<void> finish_run(RunId id, const RunEnd& end, WallTime now) = 0;

  // Phases of rounds. An attempt at one is stored when it opens, so that a restart resumes the same
  // cohort and tasks. It must bear the next attempt number of its kind and start from the last
  // committed model; a train phase is of the round after the last committed one, an evaluate phase
  // of that round itself, until one of it is committed. A run has one open attempt: "round-order",
  // "round-evaluated", "attempt-open", "run-state", "task-exists", "cohort-duplicate".
  [[nodiscard]] virtual Result<void> open_attempt(const NewAttempt& attempt) = 0;
  // Requires: a train phase; the files of the model and of its state are durable. Tasks of
  // contributors become committed, the others of this attempt expired. "attempt-closed" where it is
  // not open, "task-mismatch" where a contribution's task is not of this phase and client,
  // "weight-range".
  [[nodiscard]] virtual Result<void> commit_attempt(const AttemptKey& key,
                                                    const AttemptResult& result,
                                                    const ModelRecord& model) = 0;
  // The same for an evaluate phase, which makes no model.
  [[nodiscard]] virtual Result<void> commit_evaluation(const AttemptKey& key,
                                                       const AttemptResult& result) = 0;
  [[nodiscard]] virtual Result<void> abandon_attempt(const AttemptKey& key,
                                                     const AttemptResult& result,
                                                     const Abandonment& why) = 0;
  // What an open attempt has received and sent so far; of another one nothing is written. Not
  // durable.
  [[nodiscard]] virtual Result<void> record_traffic(const AttemptKey& key, std::uint64_t bytes_in,
                                                    std::uint64_t bytes_out) = 0;
  // Recovery from a damaged file: the last committed round, its evaluation and an open attempt that
  // started from its model become abandoned, so that the round before is the last. "round-order".
  [[nodiscard]] virtual Result<void> withdraw_round(RunId run, Round round,
                                                    const Abandonment& why) = 0;
  // Every attempt at a train phase of round `first` or a later one, in the order in which they were
  // opened: not that of the rounds where one was withdrawn.
  [[nodiscard]] virtual Result<std::vector<RoundRecord>> rounds(RunId run, Round first) = 0;
  // The same of evaluate phases.
  [[nodiscard]] virtual Result<std::vector<RoundRecord>> evaluations(RunId run, Round first) = 0;
  // Of either kind.
  [[nodiscard]] virtual Result<std::optional<RoundRecord>> find_open_attempt(RunId run) = 0;
  // The initial and every committed model, in order of round; older files may have been pruned.
  [[nodiscard]] virtual Result<std::vector<ModelRecord>> models(RunId run) = 0;
  // Of these, one; nothing where the round is not committed.
  [[nodiscard]] virtual Result<std::optional<ModelRecord>> find_model(RunId run, Round round) = 0;
  // The last committed one; 0 where there is none.
  [[nodiscard]] virtual Result<Round> last_round(RunId run) = 0;
  [[nodiscard]] virtual Result<std::optional<TaskRecord>> find_task(TaskId id) = 0;
  // What any client may ask at any time: its cost does not grow with the run's history.
  [[nodiscard]] virtual Result<std::optional<TaskEnd>> find_task_end(TaskId id) = 0;

  // The lines of `run log`, numbered from 1 on. Not durable. Reading gives at most `count_max` from
  // `first` on.
  [[nodiscard]] virtual Result<void> append_log(RunId run, std::span<const std::string> lines,
                                                WallTime now) = 0;
  [[nodiscard]] virtual Result<std::vector<LogLine>> log_lines(RunId run, std::uint64_t first,
                                                               std::size_t count_max) = 0;
  // How many there are.
  [[nodiscard]] virtual Result<std::uint64_t> log_length(RunId run) = 0;
};

}  // namespace starling::store
