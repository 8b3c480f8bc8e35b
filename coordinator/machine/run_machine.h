// SPDX-License-Identifier: Apache-2.0
// One run as a machine: it opens phases one after the other (the training of a round, then perhaps
// its evaluation by clients), and closes each with what counted or abandons it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/machine/candidates.h"
#include "coordinator/machine/open_phase.h"
#include "coordinator/machine/run_scope.h"

namespace starling::coordinator {

class RunMachine {
 public:
  // All references must outlive the machine.
  RunMachine(RunStart start, const CoordinatorOptions& options, ClientTable& clients, Turn& turn);
  RunMachine(const RunMachine&) = delete;
  RunMachine& operator=(const RunMachine&) = delete;

  const RunStart& start() const { return start_; }
  RunId id() const { return start_.id; }
  const Candidates& candidates() const { return candidates_; }
  // Null: none is open. One that is closed stays until it is committed.
  OpenPhase* open_phase() { return phase_ ? &*phase_ : nullptr; }
  // The tasks of the open phase, also while it is committed; null: none.
  const RoundMachine* phase() const { return phase_ ? &phase_->tasks() : nullptr; }
  bool over() const { return over_; }
  // As "4 clients (3 connected, 2 of them can do this run)"; empty: it does not wait.
  std::string waits_for() const;
  std::optional<TimePoint> next_deadline() const;

  // Opens the next phase if its time has come and enough clients are free, unless it is the turn of
  // the run `yields_to`. Requires: none is open.
  void try_open(std::optional<RunId> yields_to = std::nullopt);
  // What is due in the open phase, and its end.
  void advance();
  void stop();

  void came(const std::string& name);
  void went_away(const std::string& name, const ClientTable::Client& client);
  void revoked(const std::string& name);
  // Of a task that may be of an earlier phase.
  void offered_late(const std::string& client, TaskId task);
  void handle(RoundDurable& event);

  // How many tasks and clients were looked at.
  std::uint64_t work() const;

 private:
  // Opening.
  void try_open_training();
  void open_evaluation();
  void open(OpenAttempt open, bool resumed);
  bool evaluation_is_due() const;
  bool is_last_round() const;

  // Ending a phase, then the run.
  void close_if_due();
  void abandon(RoundSummary summary);
  void say_abandoned(const Error& reason);
  void end_with(RoundSummary summary, const Error& reason);
  void abandon_training(RoundSummary summary, const Error& reason);
  void end_abandoned_tasks(const Error& reason);
  void committed(const RoundSummary& summary, Durable durable);
  void measured(Round round, const Measured& found);
  void remove_phase();
  void finish(FinishRun::State state, std::optional<Error> error);

  RunStart start_;
  const RunScope run_;
  Candidates candidates_;
  std::optional<OpenPhase> phase_;
  RoundSummary closing_;  // of the phase, while it is committed
  bool over_ = false;
  bool stop_requested_ = false;
  // The last task of clients that only abandoned attempts of the present round asked: they may be
  // at work on it still, for a later attempt to take it over.
  std::map<std::string, TaskId> abandoned_;
  std::optional<RunId> yields_to_;
  std::optional<TimePoint> retry_at_;
  std::optional<TimePoint> evaluate_by_;  // the evaluation that is due: it waits no longer
  bool said_who_cannot_ = false;
  bool misses_metric_ = false;  // the last evaluation of its kind lacked stop.metric
  std::uint64_t work_ = 0;      // but that of the candidates and the open phase
};

}  // namespace starling::coordinator
