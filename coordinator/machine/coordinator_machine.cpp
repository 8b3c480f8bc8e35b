// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/coordinator_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "coordinator/machine/client_fit.h"
#include "core/base/check.h"

namespace starling::coordinator {

CoordinatorMachine::CoordinatorMachine(CoordinatorOptions options)
    : options_(std::move(options)), clients_(options_, turn_, watcher()) {}

ClientTable::Watcher CoordinatorMachine::watcher() {
  return {.came =
              [this](const std::string& name, const ClientTable::Client&) {
                for (auto& [id, run] : runs_) run.machine->came(name);
              },
          .went_away =
              [this](const std::string& name, const ClientTable::Client& client) {
                for (auto& [id, run] : runs_) run.machine->went_away(name, client);
              },
          .revoked =
              [this](const std::string& name) {
                for (auto& [id, run] : runs_) run.machine->revoked(name);
              },
          .turn_came =
              [this](const std::string& name, TaskId task) {
                if (OpenPhase* phase = phase_of(task)) phase->ask(name, task);
              }};
}

std::vector<Action> CoordinatorMachine::on(Event event, TimePoint now) {
  turn_.now = now;
  std::visit([this](auto& e) { handle(e); }, event);
  if (!draining_) advance();
  return std::exchange(turn_.actions, {});
}

std::optional<TimePoint> CoordinatorMachine::next_deadline() const {
  if (draining_) return std::nullopt;
  std::optional<TimePoint> next = clients_.next_deadline();
  for (const auto& [id, run] : runs_) {
    const auto due = run.machine->next_deadline();
    if (due) next = next ? std::min(*next, *due) : due;
  }
  return next;
}

const RunMachine* CoordinatorMachine::find_run(RunId id) const {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second.machine.get();
}

std::size_t CoordinatorMachine::runs_active() const {
  return static_cast<std::size_t>(std::ranges::count_if(runs_, [](const auto& r) {
    return r.second.machine->phase() != nullptr || r.second.machine->candidates().awaited() == 0;
  }));
}

std::size_t CoordinatorMachine::runs_contending() const {
  return runs_active() + static_cast<std::size_t>(std::ranges::count_if(runs_, [](const auto& r) {
           return r.second.machine->phase() == nullptr &&
                  r.second.machine->candidates().held_up_by_others();
         }));
}

std::string CoordinatorMachine::waits_for(RunId id) const {
  const auto held = runs_.find(id);
  if (held == runs_.end()) return "";
  const RunMachine& run = *held->second.machine;
  if (!held->second.lacks_place || run.candidates().lacks_connected()) return run.waits_for();
  return fmt::format(
      "its turn: {} a round open, which is the limit (service.runs-max)",
      options_.runs_max == 1 ? "1 run has" : fmt::format("{} runs have", options_.runs_max));
}

std::uint64_t CoordinatorMachine::work() const {
  std::uint64_t work = work_of_ended_ + clients_.work();
  for (const auto& [id, run] : runs_) work += run.machine->work();
  return work;
}

// --- messages -----------------------------------------------------------------------------------

void CoordinatorMachine::handle(MessageReceived& event) {
  ClientTable::Session* session = clients_.find_session(event.session);
  if (session == nullptr) return;  // it was closed from this side
  session->heard_at = turn_.now;
  const SessionId id = event.session;
  const protocol::Message& message = event.envelope.message;
  if (const auto* hello = std::get_if<protocol::Hello>(&message)) return clients_.greet(id, *hello);
  if (std::holds_alternative<protocol::Bye>(message)) return clients_.dismiss(id);
  if (!session->greeted) {
    return clients_.refuse(id, "bad-message", "the first message must be Hello");
  }
  receive(id, std::string(session->client), event.envelope);
}

void CoordinatorMachine::receive(SessionId id, const std::string& client,
                                 const protocol::Envelope& envelope) {
  const protocol::Message& message = envelope.message;
  if (const auto* ping = std::get_if<protocol::Ping>(&message)) {
    return turn_.send(id, protocol::Pong{ping->nonce});
  }
  if (const auto* chunk = std::get_if<protocol::Chunk>(&message)) {
    // One that comes after its task was settled needs no answer.
    OpenPhase* phase = phase_of(chunk->task);
    if (!phase || phase->closed() || !phase->tasks().find(chunk->task, client)) return;
    return phase->transfers().receive(id, *chunk, envelope.payload);
  }
  if (const auto* credit = std::get_if<protocol::Credit>(&message)) {
    OpenPhase* phase = phase_of(credit->task);
    if (!phase || phase->closed() || !phase->tasks().find(credit->task, client)) return;
    return phase->transfers().receive(id, *credit);
  }
  if (const auto* offer = std::get_if<protocol::UpdateOffer>(&message)) {
    for (auto& [run_id, run] : runs_) run.machine->offered_late(client, offer->head.task);
    return with_phase(id, client, offer->head.task,
                      [&](OpenPhase& phase) { phase.receive(client, *offer); });
  }
  if (const auto* request = std::get_if<protocol::ModelRequest>(&message)) {
    return with_phase(id, client, request->task,
                      [&](OpenPhase& phase) { phase.transfers().receive(id, *request); });
  }
  if (const auto* failed = std::get_if<protocol::TaskFailed>(&message)) {
    return with_phase(id, client, failed->task,
                      [&](OpenPhase& phase) { phase.receive(client, *failed); });
  }
  if (!std::holds_alternative<protocol::Pong>(message)) {
    clients_.refuse(id, "bad-message", "a client does not send this message");
  }
}

// What is of no open phase may have been counted before a restart or while the client was away: the
// store knows.
template <class Work>
void CoordinatorMachine::with_phase(SessionId session, const std::string& client, TaskId task,
                                    Work&& work) {
  OpenPhase* phase = phase_of(task);
  if (phase == nullptr || !phase->tasks().find(task, client)) {
    return turn_.act(LookUpTask{session, client, task});
  }
  if (!phase->closed()) work(*phase);  // else the commit under way will settle it
}

OpenPhase* CoordinatorMachine::phase_of(TaskId task) {
  for (auto& [id, run] : runs_) {
    OpenPhase* phase = run.machine->open_phase();
    if (phase != nullptr && phase->tasks().find(task) != nullptr) return phase;
  }
  return nullptr;
}

void CoordinatorMachine::handle(SessionHeard& event) {
  if (ClientTable::Session* session = clients_.find_session(event.session)) {
    session->heard_at = turn_.now;
  }
}

void CoordinatorMachine::handle(TaskLookedUp& event) {
  if (clients_.find_session(event.session) == nullptr) return;
  turn_.send(event.session, std::move(event.settlement));
}

// --- runs ---------------------------------------------------------------------------------------

void CoordinatorMachine::handle(RunSubmitted& event) {
  const RunId id = event.start.id;
  auto machine = std::make_unique<RunMachine>(std::move(event.start), options_, clients_, turn_);
  const bool is_new = runs_.emplace(id, HeldRun{std::move(machine), phases_opened_}).second;
  STARLING_CHECK(is_new);
}

void CoordinatorMachine::handle(StopRun& event) {
  const auto held = runs_.find(event.run);
  if (held != runs_.end()) held->second.machine->stop();
}

void CoordinatorMachine::handle(UploadOpened& event) {
  if (OpenPhase* phase = phase_of(event.task)) phase->handle(event);
}

void CoordinatorMachine::handle(UploadStalled& event) {
  if (OpenPhase* phase = phase_of(event.task)) phase->transfers().handle(event);
}

void CoordinatorMachine::handle(UploadSummed& event) {
  if (OpenPhase* phase = phase_of(event.task)) phase->handle(event);
}

void CoordinatorMachine::handle(RoundDurable& event) { runs_.at(event.run).machine->handle(event); }

void CoordinatorMachine::handle(Drain&) {
  draining_ = true;
  clients_.close_all("draining", "the coordinator is stopping; it will be back");
}

// A phase that closes frees clients for other runs, and makes room for the run's next one.
void CoordinatorMachine::advance() {
  while (open_phases() || close_phases()) {
  }
}

// A run that waits for clients of its own takes no turn from one that has others.
bool CoordinatorMachine::share_clients(const HeldRun& one, const HeldRun& waiting) const {
  const auto needs = [](const HeldRun& run, protocol::TaskKind kind) {
    const RunStart& start = run.machine->start();
    return ClientNeeds{start.abilities, start.job.training.data, kind};
  };
  return coordinator::share_clients(clients_, needs(one, protocol::TaskKind::kTrain),
                                    needs(waiting, waiting.machine->candidates().awaited_for()));
}

// Whether one opened, or a run ended instead.
bool CoordinatorMachine::open_phases() {
  bool any = false;
  std::vector<HeldRun*> idle;
  std::vector<RunId> open;
  for (auto& [id, run] : runs_) {
    if (run.machine->phase()) {
      open.push_back(id);
    } else if (!run.machine->over()) {
      idle.push_back(&run);
    }
  }
  if (idle.size() > 1) std::ranges::stable_sort(idle, {}, &HeldRun::opened);
  std::vector<const HeldRun*> held_up;  // their turns come before second turns of others
  for (HeldRun* run : idle) {
    run->lacks_place = open.size() >= options_.runs_max;
    if (run->lacks_place && run->machine->candidates().awaited() > 0) continue;
    std::optional<RunId> goes_before;
    if (run->lacks_place) {
      goes_before = open.back();
    } else {
      const auto first = std::ranges::find_if(held_up, [&](const HeldRun* waiting) {
        return *waiting->waits_since < run->opened && share_clients(*run, *waiting);
      });
      if (first != held_up.end()) goes_before = (*first)->machine->id();
    }
    run->machine->try_open(goes_before);
    if (run->machine->phase()) {
      open.push_back(run->machine->id());
      run->opened = ++phases_opened_;
      run->waits_since.reset();
      run->lacks_place = false;
    } else if (!goes_before && run->machine->candidates().held_up_by_others()) {
      if (!run->waits_since) run->waits_since = phases_opened_;
      held_up.push_back(run);
    }
    any = any || run->machine->phase() || run->machine->over();
  }
  return any;
}

// Whether one closed, or a run ended.
bool CoordinatorMachine::close_phases() {
  bool any = false;
  for (auto run = runs_.begin(); run != runs_.end();) {
    RunMachine& machine = *run->second.machine;
    const bool was_open = machine.phase() != nullptr;
    machine.advance();
    any = any || machine.over() || (was_open && !machine.phase());
    if (!machine.over()) {
      ++run;
      continue;
    }
    work_of_ended_ += machine.work();
    run = runs_.erase(run);
  }
  return any;
}

}  // namespace starling::coordinator
