// SPDX-License-Identifier: Apache-2.0
// Around the coordinator's machine: takes its events, performs its actions strictly in order, and
// wakes it at its deadlines. An action that meets a full disk holds all behind it until it
// succeeds, so that nothing is ever told before it is durable; the machine's clock stands still
// meanwhile, so that no deadline passes of what was not sent. Only what says nothing of the store
// goes on: sessions stay alive, and transfers continue.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/machine/coordinator_machine.h"
#include "coordinator/rounds/round_committer.h"
#include "coordinator/rounds/round_executor.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/rounds/run_log.h"
#include "coordinator/rounds/upload_desk.h"
#include "core/base/scheduler.h"
#include "core/protocol/session_links.h"

namespace starling::coordinator {

class CoordinatorShell {
 public:
  struct Options {
    CoordinatorOptions machine;
    Duration disk_retry = std::chrono::seconds(5);
    std::size_t held_actions_max = 100'000;
  };
  struct Handlers {
    std::function<void(RunId, const Job&)> on_round_began;
    std::function<void(const RoundSummary&)> on_round_abandoned;  // stored already
    std::function<void()> on_run_waits;                           // for clients
    std::function<void(RunId)> on_run_ended;                      // stored already
    std::function<void(SessionId, const std::string& client)> on_welcomed;
    std::function<void(const Error&)> on_broken;
  };
  // All must outlive the shell.
  struct Parts {
    Scheduler& scheduler;
    const Clock& clock;
    store::Store& store;
    protocol::SessionLinks& sessions;
    UploadDesk& uploads;
    RoundExecutor& executor;
    RoundCommitter& committer;
    RunLog& run_log;
    Log& log;
  };

  CoordinatorShell(const Parts& parts, Options options, Handlers handlers);

  // May be called from a handler of an action; the event's own actions follow in order.
  void handle(Event event);
  // The machine holds the run from now on.
  void start_run(const LoadedRun& run, RunStart start);
  // Nothing reads the updates of the run's phase any more: those that were kept give up their room.
  void release_updates(RunId run);
  const CoordinatorMachine& machine() const { return machine_; }
  // Why what is done for the run waits for the disk; empty: it does not.
  std::string waits_for_disk(RunId run) const;
  // When the machine last heard of a connected client, by the scheduler's clock.
  std::optional<TimePoint> heard_at(const std::string& client) const;

 private:
  bool is_dispensable(const Action& action) const;
  bool replaces_held(const Action& action);
  TimePoint machine_now() const;
  void try_again();
  void perform_all();
  Result<void> perform_now(Action& action);
  void hold(const Error& error);
  void break_down(const Error& error);
  void look_at_clock();
  std::optional<Error> never_has_room(RunId run, const Error& error) const;
  bool is_damaged_here(TaskId task, const Error& error) const;

  // kOverloaded: to be tried again, nothing has happened.
  Result<void> perform(Send& action);
  Result<void> perform(CloseSession& action);
  Result<void> perform(BeginRound& action);
  Result<void> perform(OpenUpload& action);
  Result<void> perform(WriteUpload& action);
  Result<void> perform(DropUpload& action);
  Result<void> perform(SumUpload& action);
  Result<void> perform(RecordTraffic& action);
  Result<void> perform(CommitRound& action);
  Result<void> perform(StopEvaluation& action);
  Result<void> perform(AbandonRound& action);
  Result<void> perform(RunWaits& action);
  Result<void> perform(FinishRun& action);
  Result<void> perform(LookUpTask& action);
  Result<void> perform(ClientSeen& action);
  Result<void> perform(Say& action);

  struct HeldRun {
    std::shared_ptr<const RunContext> context;
    RoundCommitter::Plan plan;
    bool keeps_updates;  // its rule needs all of a phase at once
  };

  Parts parts_;
  Options options_;
  Handlers handlers_;
  CoordinatorMachine machine_;
  std::deque<Action> actions_;
  std::map<TaskId, OpenUpload> held_opens_;  // of those that wait for the disk, the last of a task
  bool performing_ = false;
  std::optional<TimePoint> held_since_;  // by a full disk, as last tried
  std::string held_by_;                  // the disk's last error
  std::uint64_t times_held_ = 0;         // in a row
  Duration held_before_{};               // in all, earlier
  bool broken_ = false;                  // for good
  std::map<RunId, HeldRun> runs_;        // by the machine
  // Updates that keep their room until the phase ends, also of a run that is over by then.
  std::map<RunId, std::set<TaskId>> kept_;
  const std::unique_ptr<Timer> retry_;
  const std::unique_ptr<Timer> clock_timer_;
  bool clock_due_ = false;
};

}  // namespace starling::coordinator
