// SPDX-License-Identifier: Apache-2.0
// The part of a coordinator's process that is the same in the service and in a simulation: the
// machine in its shell, the queue of runs, the rounds and the uploads, put together. Sessions,
// time, disk and computation are given; everything that this object holds is lost with the process,
// and start() goes on from the store and the models' files.
#pragma once

#include "coordinator/rounds/coordinator_shell.h"
#include "coordinator/rounds/run_queue.h"

namespace starling::coordinator {

class CoordinatorCore {
 public:
  // All references must outlive the core.
  struct World {
    Scheduler& scheduler;
    const Clock& clock;
    store::Store& store;
    protocol::SessionLinks& sessions;
    Disk& disk;  // of the uploads
    CheckpointsOf checkpoints;
    PrepareContext prepare;
    const strategy::Catalogue& strategies;
    Computation& rounds;   // also waits for initial models
    Computation& loading;  // one worker
    ComputePool& evaluators;
    Log& log;
    ModelEvaluator* external = nullptr;  // evaluates and makes external models; null: nothing does
    RoundResults* results = nullptr;     // null: all is computed
  };
  struct Options {
    CoordinatorShell::Options shell;
    store::UploadSpool::Options spool;
  };
  struct Handlers {
    RunLog::OnLine on_line = [](const std::string&) {};
    // A run that the machine is about to hold.
    std::function<void(RunStart&)> on_run_loaded = [](RunStart&) {};
    std::function<void(RunId, const Job&)> on_round_began = [](RunId, const Job&) {};
    // Stored already; no outcome where it was abandoned. `lines`, which may be added to, are said
    // of a committed one.
    std::function<void(const RoundSummary&, const RoundOutcome*, std::vector<std::string>& lines)>
        on_round_ended = [](const RoundSummary&, const RoundOutcome*, std::vector<std::string>&) {};
    std::function<void(RunId)> on_run_ended = [](RunId) {};  // stored already
    std::function<void(SessionId, const std::string& client)> on_welcomed =
        [](SessionId, const std::string&) {};
    std::function<void(const Error&)> on_broken;  // only a restart can mend it
  };

  CoordinatorCore(World world, const Options& options, Handlers handlers);
  CoordinatorCore(const CoordinatorCore&) = delete;
  CoordinatorCore& operator=(const CoordinatorCore&) = delete;

  // Admits the clients of the store and loads the runs that an earlier process was at. Before any
  // session; the errors of the store.
  [[nodiscard]] Result<void> start();

  void handle(Event event) { shell_.handle(std::move(event)); }
  // The store knows already that the run is to be stopped.
  void stop(RunId run);
  // Goodbye to everyone: nothing begins any more, and the next start goes on.
  void drain();
  const CoordinatorMachine& machine() const { return shell_.machine(); }
  std::optional<TimePoint> heard_at(const std::string& client) const {
    return shell_.heard_at(client);
  }
  RunQueue& runs() { return runs_; }
  // What a run that has not ended waits for; empty: for nothing.
  std::string waits_for(const store::Run& run) const;
  bool commits() const { return committer_.busy(); }
  bool computes() const { return executor_.busy(); }

 private:
  Result<void> forget_settled_uploads();
  RoundCommitter::Handlers committer_handlers();
  CoordinatorShell::Handlers shell_handlers();
  RunQueue::Handlers queue_handlers();

  World world_;
  Handlers handlers_;
  RunLog run_log_;
  UploadDesk uploads_;
  RoundExecutor executor_;
  RoundCommitter committer_;
  CoordinatorShell shell_;
  RunQueue runs_;
};

}  // namespace starling::coordinator
