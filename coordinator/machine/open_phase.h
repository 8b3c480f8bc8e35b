// SPDX-License-Identifier: Apache-2.0
// What happens within an open phase of a run: tasks go out to its clients, inputs down, updates up,
// until each task counts or has failed. RunMachine opens it and closes it when its verdict says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/machine/claim_bounds.h"
#include "coordinator/machine/phase_transfers.h"
#include "coordinator/machine/round_machine.h"
#include "coordinator/machine/run_scope.h"
#include "core/base/deadlines.h"

namespace starling::coordinator {

class OpenPhase {
 public:
  // An attempt that `is_repetition` of many like it is not logged.
  OpenPhase(const RunScope& run, const RoundMachine::Options& options,
            const std::vector<Participant>& participants, update::Schema schema,
            bool is_repetition);
  OpenPhase(const OpenPhase&) = delete;
  OpenPhase& operator=(const OpenPhase&) = delete;

  const RoundMachine& tasks() const { return tasks_; }
  const update::Schema& schema() const { return schema_; }
  bool trains() const { return tasks_.options().kind == protocol::TaskKind::kTrain; }
  bool is_repetition() const { return is_repetition_; }
  // No task changes any more: what counted is made durable.
  bool closed() const { return closed_; }
  std::optional<TimePoint> next_deadline() const;

  void ask_all(const std::vector<Participant>& participants);
  // Sends the task, once it is this one's turn.
  void ask(const std::string& name, TaskId task);

  void came(const std::string& name);
  void went_away(const std::string& name, const ClientTable::Client& client);
  void revoked(const std::string& name);

  // Of a task of the phase that was issued to this client, and only then. Requires: not closed().
  void receive(const std::string& client, const protocol::UpdateOffer& offer);
  void receive(const std::string& client, const protocol::TaskFailed& failed);
  PhaseTransfers& transfers() { return transfers_; }
  // Of a task of the phase.
  void handle(const UploadOpened& event);
  void handle(const UploadSummed& event);

  // What is due: retries, absent clients.
  void advance();
  // By its verdict, or because of `ended`. Requires: the verdict is not kOpen, or `ended`.
  RoundSummary close(const std::optional<Error>& ended = std::nullopt);
  // Tells clients that their tasks are over.
  void tell_failed_tasks();
  void end_all_tasks(const Error& reason);
  // The clients are free for other tasks.
  void release_all();

 private:
  void ask_or_await(const std::string& name, TaskId task);
  void await(TaskId task, const ClientTable::Client& client);
  Duration absence_max(const ClientTable::Client& client) const;
  void ask_again(const std::string& name, TaskId task, const Error& reason);
  void fail_task(TaskId task, const Error& error);
  void fail_by_client(const std::string& name, TaskId task, const Error& error,
                      bool permanent = false);
  void tell_task_end(TaskId task);
  void give_up_absent();

  const RunScope run_;
  RoundMachine tasks_;
  const update::Schema schema_;
  const ClaimBounds bounds_;
  PhaseTransfers transfers_;
  Deadlines<TaskId> absent_;  // asked, and the client is not connected: when it is given up
  const bool is_repetition_;
  bool closed_ = false;
};

}  // namespace starling::coordinator
