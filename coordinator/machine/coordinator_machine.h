// SPDX-License-Identifier: Apache-2.0
// The coordinator as a deterministic machine: the table of its clients and the runs that it holds.
// At most runs_max runs have a phase open at a time, each of them one; a client works for one task
// at a time. Only phases that a restart resumes may be more, and no other phase opens then. Of the
// runs that could open a phase, the one that opened its last phase longest ago goes first; while it
// waits for clients that are at work, each other run opens one more phase at most. The machine owns
// no socket, clock, thread, file or randomness. An event costs time logarithmic in the clients and
// tasks and linear in the runs, unless it begins or ends a run or a phase, revokes a client or
// drains.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/machine/client_table.h"
#include "coordinator/machine/coordinator_events.h"
#include "coordinator/machine/run_machine.h"
#include "coordinator/machine/turn.h"

namespace starling::coordinator {

class CoordinatorMachine {
 public:
  explicit CoordinatorMachine(CoordinatorOptions options);
  CoordinatorMachine(const CoordinatorMachine&) = delete;
  CoordinatorMachine& operator=(const CoordinatorMachine&) = delete;

  std::vector<Action> on(Event event, TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  const ClientTable& clients() const { return clients_; }
  // Null where the machine does not hold it.
  const RunMachine* find_run(RunId run) const;
  std::size_t runs_held() const { return runs_.size(); }
  // Those of them that do not wait for clients.
  std::size_t runs_active() const;
  // And those that wait for clients which are at work for other runs.
  std::size_t runs_contending() const;
  // Why a run that is held has no phase open, as "4 clients (2 connected)"; empty where it has one,
  // is about to open one, or is not held.
  std::string waits_for(RunId run) const;
  // How many tasks, clients and sessions were looked at so far, which is what events have cost.
  std::uint64_t work() const;

 private:
  struct HeldRun {
    std::unique_ptr<RunMachine> machine;
    std::uint64_t opened = 0;  // when it opened its last phase, in phases of all runs
    std::optional<std::uint64_t> waits_since;  // for clients that are at work for others
    bool lacks_place = false;                  // as many phases as may be are open
  };

  void handle(ClientAdmitted& event) { clients_.handle(event); }
  void handle(ClientRevoked& event) { clients_.handle(event); }
  void handle(SessionOpened& event) { clients_.handle(event); }
  void handle(SessionClosed& event) { clients_.handle(event); }
  void handle(MessageReceived&);
  void handle(SessionHeard&);
  void handle(RunSubmitted&);
  void handle(StopRun&);
  void handle(UploadOpened&);
  void handle(UploadStalled&);
  void handle(UploadSummed&);
  void handle(RoundDurable&);
  void handle(TaskLookedUp&);
  void handle(Tick&) { clients_.close_silent(); }
  void handle(Drain&);

  void receive(SessionId id, const std::string& client, const protocol::Envelope& envelope);
  // Calls work(phase) with the open phase that has this client's task, or asks the store.
  template <class Work>
  void with_phase(SessionId session, const std::string& client, TaskId task, Work&& work);

  void advance();  // after every event: whatever can happen now, happens
  bool share_clients(const HeldRun& one, const HeldRun& waiting) const;
  bool open_phases();
  bool close_phases();
  OpenPhase* phase_of(TaskId task);  // null: none that is open
  ClientTable::Watcher watcher();

  const CoordinatorOptions options_;
  Turn turn_;
  ClientTable clients_;
  std::map<RunId, HeldRun> runs_;  // in order of submission
  std::uint64_t phases_opened_ = 0;
  bool draining_ = false;
  std::uint64_t work_of_ended_ = 0;
};

}  // namespace starling::coordinator
