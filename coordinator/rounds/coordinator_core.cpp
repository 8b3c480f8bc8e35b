// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/coordinator_core.h"

namespace starling::coordinator {

CoordinatorCore::CoordinatorCore(World world, const Options& options, Handlers handlers)
    : world_(std::move(world)),
      handlers_(std::move(handlers)),
      run_log_(world_.store, world_.clock, world_.log, handlers_.on_line),
      uploads_(world_.disk, options.spool),
      executor_(world_.rounds, world_.evaluators, world_.external, world_.results),
      committer_({world_.scheduler, world_.clock, world_.store, world_.checkpoints, executor_,
                  run_log_, world_.log, world_.external},
                 options.shell.disk_retry, committer_handlers()),
      shell_({world_.scheduler, world_.clock, world_.store, world_.sessions, uploads_, executor_,
              committer_, run_log_, world_.log},
             options.shell, shell_handlers()),
      runs_(
          {world_.scheduler, world_.clock, world_.store, world_.checkpoints, world_.prepare,
           world_.strategies, world_.loading, world_.rounds, run_log_, world_.log, world_.external},
          {options.shell.disk_retry, options.shell.machine.runs_max}, queue_handlers()) {}

RoundCommitter::Handlers CoordinatorCore::committer_handlers() {
  return {.on_durable = [this](RoundDurable event) { shell_.handle(std::move(event)); },
          .on_computed = [this](RunId run) { shell_.release_updates(run); },
          .on_committed =
              [this](const RoundSummary& summary, const RoundOutcome& outcome,
                     std::vector<std::string>& lines) {
                uploads_.end_phase(summary.run);
                handlers_.on_round_ended(summary, &outcome, lines);
              },
          .on_broken = handlers_.on_broken};
}

CoordinatorShell::Handlers CoordinatorCore::shell_handlers() {
  return {.on_round_began =
              [this](RunId run, const Job& job) {
                handlers_.on_round_began(run, job);
                runs_.clients_changed();
              },
          .on_round_abandoned =
              [this](const RoundSummary& summary) {
                uploads_.end_phase(summary.run);
                std::vector<std::string> lines;
                handlers_.on_round_ended(summary, nullptr, lines);
              },
          .on_run_waits = [this] { runs_.load_next(); },
          .on_run_ended =
              [this](RunId run) {
                handlers_.on_run_ended(run);
                runs_.ended(run);
              },
          .on_welcomed =
              [this](SessionId session, const std::string& client) {
                handlers_.on_welcomed(session, client);
                runs_.clients_changed();
              },
          .on_broken = handlers_.on_broken};
}

RunQueue::Handlers CoordinatorCore::queue_handlers() {
  return {.on_ready =
              [this](const LoadedRun& run, RunStart start) {
                handlers_.on_run_loaded(start);
                shell_.start_run(run, std::move(start));
              },
          .on_stop = [this](RunId run) { shell_.handle(StopRun{run}); },
          .runs_active = [this] { return machine().runs_active(); },
          .runs_contending = [this] { return machine().runs_contending(); },
          .clients = [this]() -> const ClientTable& { return machine().clients(); },
          .on_broken = handlers_.on_broken};
}

// Clients are admitted when all is loaded, and phases are opened then: no client can come back
// meanwhile, so that the time must not count against them.
Result<void> CoordinatorCore::start() {
  STARLING_TRY(runs_.load_running());
  STARLING_ASSIGN(const auto clients, world_.store.clients());
  for (const store::Client& client : clients) {
    const bool admitted = client.state == store::ClientState::kActive;
    if (!admitted || client.role == store::Role::kOperator) continue;
    shell_.handle(ClientAdmitted{client.name, client.last_seen.has_value(), client.greeting});
  }
  STARLING_TRY(runs_.resume());
  return forget_settled_uploads();
}

void CoordinatorCore::stop(RunId run) {
  handle(StopRun{run});
  runs_.stopped(run);
}

void CoordinatorCore::drain() {
  handle(Drain{});
  runs_.drain();
}

std::string CoordinatorCore::waits_for(const store::Run& run) const {
  std::string disk = committer_.waits_for_disk(run.id);
  if (disk.empty()) disk = shell_.waits_for_disk(run.id);
  if (!disk.empty()) return "the disk: " + disk;
  if (std::string trainer = committer_.waits_for_trainer(run.id); !trainer.empty()) return trainer;
  std::string why = machine().waits_for(run.id);
  return why.empty() ? runs_.waits_for(run) : why;
}

// Also of runs that wait for their data an open phase goes on later.
Result<void> CoordinatorCore::forget_settled_uploads() {
  std::set<TaskId> open_tasks;
  STARLING_ASSIGN(const auto running, world_.store.runs(store::RunState::kRunning));
  for (const store::Run& run : running) {
    STARLING_ASSIGN(const auto open, world_.store.find_open_attempt(run.id));
    if (!open) continue;
    for (const store::CohortMember& member : open->cohort) open_tasks.insert(member.task);
  }
  uploads_.forget_all_but(open_tasks);
  return {};
}

}  // namespace starling::coordinator
