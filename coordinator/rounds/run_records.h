// SPDX-License-Identifier: Apache-2.0
// Between the machine's words and the store's: what is written when a round begins and ends, and
// the lines that people read of it.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/machine/coordinator_machine.h"
#include "coordinator/rounds/round_aggregate.h"
#include "core/store/checkpoints.h"
#include "core/store/run_store.h"

namespace starling::coordinator {

store::PhaseKind to_record(protocol::TaskKind kind);
store::AttemptKey key_of(const RoundSummary& summary);
store::NewAttempt to_record(const BeginRound& begin, WallTime now);
store::AttemptResult to_record(const RoundSummary& summary, const RoundOutcome* outcome);
OpenAttempt to_open_attempt(const store::RoundRecord& record);

// Whether the attempt was taken back because of a damaged model, its own or the one it began with.
bool is_withdrawn(const store::RoundRecord& record);

// What makes a model the best: the metric that may stop the run; none: any.
std::optional<store::Metric> metric_of(const StopOptions& stop);
// Its word in a job: "federated-loss".
std::string word_of(const store::Metric& metric);

// Whether a run ends early, by its records of trainings and of evaluations by clients.
EarlyStopping replay_stopping(const StopOptions& stop,
                              const std::vector<store::RoundRecord>& rounds,
                              const std::vector<store::RoundRecord>& evaluations);

// A run as the machine takes it: from `at` on, which is the initial or the last committed position.
// `rounds`, `evaluations`: all of the run's records of trainings and of evaluations by clients;
// `open`: its open phase, which is resumed.
RunStart to_run_start(RunId id, const RunContext& context, RunPosition at,
                      const std::vector<store::RoundRecord>& rounds,
                      const std::optional<store::RoundRecord>& open,
                      const std::vector<store::RoundRecord>& evaluations = {});

// "run completed", "run failed: what went wrong": the last line of a run's log.
std::string end_line(const store::RunEnd& end);

// What a client is told of a task that is not of an open phase of the machine. Nothing of an
// attempt that was abandoned while its phase may still be tried again: the finished update or
// evaluation is good for the next attempt. Nothing either of the open attempt of a run that waits
// for its files after a restart: it is resumed once they are there.
[[nodiscard]] Result<std::optional<protocol::Message>> settle_task(store::RunStore& store,
                                                                   TaskId task,
                                                                   const std::string& client);

// What a committed round prints, as people expect:
//   [round 3/20] 9 updates, 1 failure (cam-7: deadline, no update came within 61.0 s, 2.1 MB
//   received)
//   [round 3/20] not evaluated at the coordinator: trainer-died, the trainer ended with exit code 3
//   [round 3/20] train loss 0.4127  eval loss 0.4385  accuracy 0.8421  1.93 s  in 38.4 MB  out 38.4
//   MB
std::vector<std::string> round_lines(const RoundSummary& summary, const RoundOutcome* outcome,
                                     Round rounds);

}  // namespace starling::coordinator
