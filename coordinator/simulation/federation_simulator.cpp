// SPDX-License-Identifier: Apache-2.0
// The coordinator's process, and how processes die; the clients stand in
// federation_simulator_clients.cpp, the network and the nodes in federation_simulator_world.cpp.
#include "coordinator/simulation/federation_simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_records.h"
#include "core/base/check.h"

namespace starling::coordinator {
namespace {

constexpr std::string_view kModels = "models";
constexpr std::chrono::hours kCertificateLifetime(24 * 3650);

// Ids count up from 1.
Result<RunId> next_run(store::Store& store) {
  STARLING_ASSIGN(const auto runs, store.runs());
  return RunId(runs.empty() ? 1 : runs.back().id.value() + 1);
}

}  // namespace

class FederationSimulator::Sessions final : public protocol::SessionLinks {
 public:
  explicit Sessions(FederationSimulator& world) : world_(world) {}

  void send(SessionId session, const protocol::Envelope& envelope) override {
    const auto node = world_.node_of_session_.find(session);
    if (node == world_.node_of_session_.end()) return;
    world_.transmit(node->second, session, Direction::kToClient, envelope);
  }
  void close(SessionId session, const std::string& code, const std::string& message) override {
    const auto node = world_.node_of_session_.find(session);
    if (node != world_.node_of_session_.end()) {
      world_.break_session(node->second, retry(code, message));
    }
  }
  bool is_open(SessionId session) const override {
    return world_.node_of_session_.contains(session);
  }

 private:
  FederationSimulator& world_;
};

// By a trainer of the clients', on its worker's thread.
class FederationSimulator::Evaluator final : public ModelEvaluator {
 public:
  explicit Evaluator(FederationSimulator& world) : world_(world) {}

  Result<train::Evaluation> evaluate(RunId, const RunContext& context, Round round,
                                     const model::Snapshot& model,
                                     const std::stop_token&) override {
    static const std::atomic<bool> kNeverStops = false;
    std::optional<Result<train::Evaluation>> found;
    world_.pool_.for_each(1, [&](std::size_t, unsigned worker) {
      const auto trainer = world_.options_.trainers->make(std::string(kEvaluatorClient), worker);
      found.emplace(evaluate_by(*trainer, context, round, model, kNeverStops));
    });
    return *std::move(found);
  }
  bool makes_models() const override { return false; }  // the run is prepared with its model
  Result<model::Snapshot> initialize(RunId, const Job&, const std::stop_token&) override {
    return world_.context_->external;
  }
  std::optional<RunId> at_work_for() const override { return std::nullopt; }

 private:
  FederationSimulator& world_;
};

FederationSimulator::FederationSimulator(store::Store& store, const Clock& clock, Options options,
                                         Hooks hooks)
    : store_(store),
      clock_(clock),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      caches_(options_.threads),
      pool_(options_.threads),
      fault_rng_({.seed = options_.faults.seed, .purpose = Purpose::kNetwork}),
      sessions_(std::make_unique<Sessions>(*this)),
      evaluator_(options_.trainers ? std::make_unique<Evaluator>(*this) : nullptr) {
  if (options_.journal != nullptr) {
    options_.journal->for_each_held_state = [this](const auto& visit) { visit_held_states(visit); };
  }
  disk_.set_fault_injector([this](const auto& path) { return draw_fault("coordinator", path); });
}

FederationSimulator::~FederationSimulator() = default;

sim::SimulatedDisk& FederationSimulator::disk_of(const std::string& process) {
  return process == "coordinator" ? disk_ : nodes_[node_of_.at(process)]->disk;
}

Result<RunId> FederationSimulator::run(const RunContext& context, Replay replay) {
  job_text_ = job_to_toml(context.job);
  context_ = std::make_shared<RunContext>(context);
  replay_ = std::move(replay);
  STARLING_ASSIGN(run_, next_run(store_));
  STARLING_TRY(admit_clients());
  start_coordinator();
  STARLING_TRY(begin_world());
  submit_when_connected();
  while (!finished_ && !failure_) {
    if (scheduler_.now() > options_.give_up_at) {
      return internal("simulation-stalled",
                      fmt::format("the run had not ended after {} of virtual time",
                                  format_duration(scheduler_.now() - TimePoint{})));
    }
    bool some = true;
    run_turn([&] { some = scheduler_.run_one(); });
    if (!some) {  // with clients that stay there is always a timer
      STARLING_CHECK(options_.world && options_.world->population().churns());
      return rejected("all-left", fmt::format("after {:.1f} s of virtual time every client has "
                                              "left: raise nodes.leave-after or lower rounds",
                                              seconds_now()));
    }
    ++turns_;
    STARLING_TRY(end_turn());
    if (std::exchange(may_have_ended_, false)) STARLING_TRY(look_for_end());
  }
  if (failure_) return *failure_;
  return run_;
}

// --- how it goes on where another process stopped (simulation_journal.h) ------------------------

Result<void> FederationSimulator::end_turn() {
  const bool committed = std::exchange(committed_, false);
  if (options_.journal != nullptr) return tend_journal(*options_.journal, committed);
  return committed ? hooks_.on_commit(run_) : Result<void>();
}

Result<void> FederationSimulator::tend_journal(SimulationJournal& journal, bool committed) {
  const SimulationJournal::Mark here{
      .turns = turns_,
      .messages = messages_,
      .upload_bytes = upload_bytes_,
      .virtual_nanoseconds = scheduler_.now().time_since_epoch().count()};
  if (journal.repeats()) {
    const bool is_there = turns_ >= journal.mark().turns;
    if (journal.differs() || (is_there && !journal.end_repetition(here))) {
      return rejected("repetition-differs", "what was computed before is not of this run");
    }
    return is_there ? hooks_.on_repeated() : Result<void>();
  }
  if (!committed || !journal.is_quiet()) return {};
  if (journal.models() > models_max_) {
    journal.forget_models_but(rounds_at_work());
    models_max_ = 2 * journal.models();
  }
  journal.set_mark(here);
  return hooks_.on_commit(run_);
}

// --- how processes die --------------------------------------------------------------------------

void FederationSimulator::run_turn(const std::function<void()>& turn) {
  try {
    turn();
  } catch (const sim::ProcessCrash& killed) {
    crash(killed.process);
  }
}

void FederationSimulator::crash(std::uint32_t process) {
  if (process == kCoordinator) return kill_coordinator(options_.faults.restart_after);
  crash_client(process);
}

sim::SimulatedDisk::Fault FederationSimulator::draw_fault(const std::string& process,
                                                          const std::filesystem::path& path) {
  using Fault = sim::SimulatedDisk::Fault;
  if (options_.faults.disk) return options_.faults.disk(process, path);
  if (!happens(options_.faults.disk_crash)) return Fault::kNone;
  constexpr std::array<Fault, 3> kCrashes = {Fault::kCrashBefore, Fault::kTornWrite,
                                             Fault::kCrashAfter};
  return kCrashes[fault_rng_.below(kCrashes.size())];
}

// --- the coordinator's process ------------------------------------------------------------------

// What joining would have left in the store.
Result<void> FederationSimulator::admit_clients() {
  const WallTime now = clock_.wall_now();
  for (const auto& node : nodes_) {
    store::Certificate certificate{.serial = node->name,
                                   .client = node->name,
                                   .not_before = now,
                                   .not_after = now + kCertificateLifetime};
    certificate.fingerprint = sha256(as_bytes(node->name));
    STARLING_TRY(store_.add_client(node->name, store::Role::kDevice, certificate, now));
  }
  return {};
}

void FederationSimulator::make_core() {
  CoordinatorCore::Options options;
  options.shell.machine.federation = "simulated";
  options.shell.machine.transfer = options_.transfer;
  options.spool = options_.spool;
  core_ = std::make_unique<CoordinatorCore>(
      CoordinatorCore::World{
          scheduler_, clock_, store_, *sessions_, disk_,
          [this](RunId run) {
            if (options_.checkpoints) return *options_.checkpoints;
            return store::Checkpoints(disk_,
                                      std::filesystem::path(kModels) / std::to_string(run.value()));
          },
          [this](const Job&, const ExternalOrigin&) { return Result<RunContext>(*context_); },
          *options_.strategies, immediate_, immediate_, pool_, log_, evaluator_.get(),
          options_.journal},
      options, core_handlers());
}

void FederationSimulator::start_coordinator() {
  may_have_ended_ = true;  // in the store, just before a crash
  run_turn([this] {
    make_core();
    if (const auto names = store::set_aside_unknown_runs(store_, disk_, kModels); !names) {
      return coordinator_broke(names.error());
    }
    if (const auto started = core_->start(); !started) return coordinator_broke(started.error());
    if (submitted_) core_->runs().load_next();
  });
}

CoordinatorCore::Handlers FederationSimulator::core_handlers() {
  return {.on_line =
              [this](const std::string& line) {
                may_have_ended_ = true;
                const bool is_told = options_.journal != nullptr && options_.journal->repeats();
                if (hooks_.on_line && !is_told) hooks_.on_line(line);
                if (lines_left_ > 0 && --lines_left_ == 0) std::exchange(after_lines_, {})();
              },
          .on_run_loaded =
              [this](RunStart& start) {
                start.replay = replay_;
                // From a simulated disk only the next round, or the next process, reads a model.
                if (!options_.checkpoints) start.job.checkpoint.keep = 1;
              },
          .on_round_ended =
              [this](const RoundSummary& summary, const RoundOutcome* outcome,
                     std::vector<std::string>& lines) {
                if (summary.kind == protocol::TaskKind::kTrain) {
                  ended_at_[{summary.round, summary.attempt}] = seconds_now();
                }
                if (outcome == nullptr) return;
                committed_ = true;
                if (options_.world)
                  lines.back() += fmt::format("  {:.2f} s virtual", seconds_now());
                if (!hooks_.on_round) return;
                lines_left_ = lines.size();
                after_lines_ = [this, summary, outcome = *outcome] {
                  hooks_.on_round(summary, outcome);
                };
              },
          .on_broken = [this](const Error& error) { coordinator_broke(error); }};
}

// A service ends when its disk breaks or has no room at its start, and is started again.
void FederationSimulator::coordinator_broke(const Error& error) {
  const bool of_disk = error.code() == "fsync-failed" || error.code() == "disk-full";
  if (!of_disk || options_.checkpoints) return fail(error);
  scheduler_.post([this] {
    if (core_) kill_coordinator(options_.faults.restart_after);
  });
}

// The run begins once everybody is there, as researchers expect of clients that cost nothing; where
// clients come and go, at once: round.wait-for decides, as it does for a service.
void FederationSimulator::submit_when_connected() {
  const bool churns = options_.world && options_.world->population().churns();
  if (core_ && (churns || core_->machine().clients().count_connected() == nodes_.size())) {
    const JobOptions& job = context_->job.job;
    const auto submitted = store_.submit_run({.name = job.name, .seed = job.seed, .job = job_text_},
                                             clock_.wall_now());
    if (!submitted) return fail(submitted.error());
    STARLING_CHECK(*submitted == run_);
    submitted_ = true;
    return run_turn([this] { core_->runs().load_next(); });
  }
  const Duration pause =
      std::max<Duration>(options_.faults.latency_max / 10, std::chrono::milliseconds(1));
  scheduler_.schedule(scheduler_.now() + pause, [this] { submit_when_connected(); });
}

Result<void> FederationSimulator::look_for_end() {
  if (const auto error = too_few_clients()) {
    const store::RunEnd end{store::RunState::kFailed, error->code(), error->message()};
    STARLING_TRY(store_.finish_run(run_, end, clock_.wall_now()));
    if (hooks_.on_line) hooks_.on_line(end_line(end));
  }
  STARLING_ASSIGN(const auto run, store_.find_run(run_));
  finished_ = run && store::is_finished(run->state);
  return {};
}

// A service waits for clients that join later; here all have joined.
std::optional<Error> FederationSimulator::too_few_clients() const {
  const RunMachine* run = core_ ? core_->machine().find_run(run_) : nullptr;
  if (run == nullptr || run->phase() || run->candidates().awaited() == 0) return std::nullopt;
  const Candidates::Reach reach = run->candidates().reach();
  if (reach.able >= run->candidates().awaited()) return std::nullopt;
  std::string why = fmt::format("round {} waits for {}, and no other client can join",
                                run->start().at.version.round + 1, run->waits_for());
  const auto one = std::ranges::find(reach.left_out, false, &Candidates::Reach::LeftOut::trains);
  if (one != reach.left_out.end()) why += fmt::format("; {}: {}", one->client, one->reason);
  return rejected("too-few-clients", std::move(why));
}

void FederationSimulator::kill_coordinator(Duration restart_after) {
  ++crashes_;
  core_.reset();
  if (options_.faults.power_cuts) disk_.cut_power(fault_rng_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    break_session(i, retry("connection-lost", "the coordinator went away"));
  }
  scheduler_.schedule(scheduler_.now() + restart_after, [this] { start_coordinator(); });
}

void FederationSimulator::to_coordinator(Event event) {
  if (!core_ || finished_) return;
  run_turn([&] { core_->handle(std::move(event)); });
}

// --- sessions -----------------------------------------------------------------------------------

bool FederationSimulator::happens(double probability) {
  if (probability <= 0) return false;
  return fault_rng_.uniform() < probability && scheduler_.now() < options_.faults.until;
}

void FederationSimulator::deliver(std::size_t index, SessionId session, Direction direction,
                                  protocol::Envelope& envelope) {
  if (nodes_[index]->session != session) return;  // it broke on the way
  const bool breaks = happens(options_.faults.disconnect);
  messages_ += breaks ? 0 : 1;
  if (breaks || messages_ == options_.faults.cut_at_message) {
    ++disconnects_;
    return break_session(index, retry("connection-lost", "the connection broke"));
  }
  const bool kills = messages_ == options_.faults.kill_at_message;
  if (direction == Direction::kToClient) {
    if (kills || happens(options_.faults.client_crash)) return crash_client(index);
    if (fallback_) fallback_->see(index, envelope.message);
    return to_client(index, client::Received{std::move(envelope)});
  }
  if (kills || happens(options_.faults.coordinator_crash)) {
    return kill_coordinator(options_.faults.restart_after);
  }
  to_coordinator(MessageReceived{session, std::move(envelope)});
}

void FederationSimulator::break_session(std::size_t index, const Error& reason, bool tell_client) {
  Node& node = *nodes_[index];
  if (!node.session) return;
  const SessionId session = *node.session;
  node.session.reset();
  node_of_session_.erase(session);
  if (options_.world) options_.world->forget_session(static_cast<std::uint32_t>(index));
  if (fallback_) fallback_->lost(index);
  scheduler_.post([this, index, session, reason, tell_client, incarnation = node.incarnation] {
    to_coordinator(SessionClosed{session});
    if (tell_client && nodes_[index]->incarnation == incarnation) {
      to_client(index, client::Disconnected{reason});
    }
  });
}

}  // namespace starling::coordinator
