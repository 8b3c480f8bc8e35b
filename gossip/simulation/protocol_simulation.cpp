// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/protocol_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "core/base/scratch_directory.h"
#include "core/identity/certificate_authority.h"
#include "core/sim/link_queues.h"
#include "core/sim/simulated_disk.h"
#include "core/sim/virtual_computation.h"
#include "gossip/peer/network_run.h"
#include "gossip/peer/peer_shell.h"
#include "gossip/simulation/peer_network.h"

namespace starling::gossip {
namespace {

using identity::IdentityDirectory;
using identity::Role;

constexpr const char* kFederation = "simulation";
// Virtual time in which no node comes further than it ever was.
constexpr Duration kPatience = std::chrono::hours(1);

TimePoint time_of(double seconds) { return TimePoint{} + from_seconds(seconds); }
// Past `seconds`, whatever is rounded.
TimePoint time_after(double seconds) { return time_of(seconds) + std::chrono::nanoseconds(2); }
double seconds_of(TimePoint time) { return to_seconds(time - TimePoint{}); }
// Where the local phase ends in which a node comes to `step`.
std::uint64_t step_mixed(const NetOptions& options, std::uint64_t step) {
  const StepSchedule schedule = options.schedule();
  return schedule.after(schedule.mixings_until(step));
}

// How long frames take: over the sender's link, one after the other, the way between, and what the
// receiver's link is slower.
class Passage {
 public:
  explicit Passage(const sim::Network& network, Node nodes)
      : network_(network), sends_until_(nodes), numbers_(nodes) {}

  double seconds(Node from, Node to, std::size_t bytes, double now) {
    const double begins = std::max(now, sends_until_[from]);
    const double transfer = network_.transfer_seconds(from, bytes);
    const sim::Network::Message message{from, to, numbers_[from]++, bytes, begins + transfer};
    const auto way = network_.pass_reliably(message);
    const double sent = begins + network_.transfer_seconds(from, bytes + way.resent_bytes);
    sends_until_[from] = sent;
    resent_bytes_ += way.resent_bytes;
    const double slower = std::max(0.0, network_.transfer_seconds(to, bytes) - transfer);
    return queues_.passes(network_, message, sent + way.seconds) + slower - now;
  }
  std::uint64_t resent_bytes() const { return resent_bytes_; }

 private:
  const sim::Network& network_;
  sim::LinkQueues queues_;
  std::vector<double> sends_until_;
  std::vector<std::uint64_t> numbers_;
  std::uint64_t resent_bytes_ = 0;
};

class ProtocolSimulation final : public NetworkSimulation {
 public:
  ProtocolSimulation(const Experiment& experiment, ComputePool& pool);
  [[nodiscard]] Result<void> begin();

  Result<void> advance(std::uint64_t step, double until) override;
  const Totals& totals() const override { return totals_; }
  bool present(Node node) const override { return peers_[node]->process != nullptr; }
  std::span<const float> model(Node node) const override { return peers_[node]->model; }
  void trace(Sha256& hash) const override;

 private:
  class PeerClock final : public Clock {
   public:
    PeerClock(const Scheduler& scheduler, WallTime began) : scheduler_(scheduler), began_(began) {}
    TimePoint now() const override { return scheduler_.now(); }
    WallTime wall_now() const override {
      return began_ + std::chrono::floor<std::chrono::milliseconds>(now() - TimePoint{});
    }

   private:
    const Scheduler& scheduler_;
    WallTime began_;
  };
  // Only the reason why a peer gives up is kept.
  class PeerLog final : public Log {
   public:
    PeerLog(std::string name, std::optional<Error>& failure)
        : name_(std::move(name)), failure_(failure) {}
    void write(LogLevel level, std::string_view line) override {
      if (level < LogLevel::kError || failure_) return;
      failure_ = rejected("peer-failed", fmt::format("{}: {}", name_, line));
    }

   private:
    std::string name_;
    std::optional<Error>& failure_;
  };
  struct Process {
    Process(sim::VirtualScheduler& scheduler, sim::SharedProcessors& processors,
            std::function<Duration()> takes)
        : training(processors, std::move(takes)), rest(scheduler) {}
    sim::TimedComputation training;
    sim::ImmediateComputation rest;
    std::unique_ptr<PeerShell> shell;
  };
  struct HandedIn {
    std::uint64_t step = 0;
    std::vector<float> model;
  };
  struct Peer {
    Peer(std::string its_name, Node node, std::optional<Error>& failure)
        : name(std::move(its_name)), log(name, failure), disk(node) {}
    const std::string name;
    PeerLog log;
    sim::SimulatedDisk disk;
    std::optional<IdentityDirectory> identity;
    std::unique_ptr<Process> process;  // null: away
    std::deque<HandedIn> handed_in;    // for evaluations to come
    std::uint64_t handed_in_until = 0;
    std::uint64_t furthest = 0;  // step, by its reports
    std::uint32_t starts = 0;    // of processes
    Traffic said;                // by the process at work; the next by those that have ended
    Traffic said_before;
    HandedIn latest;                      // where every model is handed in: hands_in_all()
    std::vector<float> model;             // at the latest measurement
    PeerTransport::Counters before = {};  // of processes that have ended
  };

  Result<void> make_identities();
  Result<identity::SignedRoster> make_roster() const;
  void plan_splits();
  void update_cuts();
  void start_node(Node node);
  void kill_node(Node node);
  Duration phase_of(Node node);
  std::unique_ptr<PeerShell> make_shell(Node node, Process& process);
  void count(Peer& peer, const protocol::PeerReport& report);
  bool hands_in_all() const { return experiment_.options.run.virtual_time > Duration::zero(); }
  void take(Peer& peer, HandedIn handed_in);
  bool is_evaluated(std::uint64_t step) const;
  bool has_reached(const Peer& peer, std::uint64_t step) const;
  bool have_reached(std::uint64_t step) const;
  bool all_away() const;
  Error no_progress_of_peers() const;
  std::uint64_t present_step() const;
  void record_totals(std::uint64_t step);

  const Experiment& experiment_;
  sim::VirtualScheduler scheduler_;
  sim::SharedProcessors processors_;
  PeerClock clock_;
  Passage passage_;
  std::map<std::string, Node> nodes_;
  std::optional<Error> failure_;
  PeerNetwork network_;
  std::optional<identity::Credentials> issuer_;
  std::optional<identity::SignedRoster> roster_;
  std::vector<std::unique_ptr<Peer>> peers_;
  TimePoint progress_at_{};
  TimePoint left_at_{};  // the process that ended last
  Duration longest_phase_{};
  Totals totals_;
};

ProtocolSimulation::ProtocolSimulation(const Experiment& experiment, ComputePool& pool)
    : experiment_(experiment),
      processors_(scheduler_, pool),
      clock_(scheduler_, SystemClock().wall_now()),
      passage_(experiment.network, experiment.nodes()),
      network_(scheduler_, {.passage = [this](const std::string& from, const std::string& to,
                                              std::size_t bytes) {
                 const double now = seconds_of(scheduler_.now());
                 const double took = passage_.seconds(nodes_.at(from), nodes_.at(to), bytes, now);
                 return from_seconds(took);
               }}) {
  for (Node node = 0; node < experiment.nodes(); ++node) {
    peers_.push_back(std::make_unique<Peer>(fmt::format("node-{:05}", node), node, failure_));
    nodes_[peers_.back()->name] = node;
    peers_.back()->model = experiment.initial_of(node);
  }
}

Result<void> ProtocolSimulation::begin() {
  STARLING_TRY(make_identities());
  STARLING_ASSIGN(roster_, make_roster());
  plan_splits();
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    const double from = experiment_.population.up_from(node, 0);
    if (from == 0) {
      start_node(node);  // now: it is there at the first measurement
    } else if (from < sim::kNever) {
      scheduler_.schedule(time_after(from), [this, node] { start_node(node); });
    }
  }
  if (failure_) return *failure_;
  return {};
}

// Nothing depends on the keys but who is believed.
Result<void> ProtocolSimulation::make_identities() {
  const WallTime now = clock_.wall_now();
  STARLING_ASSIGN(const ScratchDirectory scratch, ScratchDirectory::make());
  STARLING_ASSIGN(const auto authority,
                  identity::CertificateAuthority::make({.federation = kFederation}, now));
  STARLING_ASSIGN(issuer_,
                  authority.issue_credentials({.role = Role::kIssuer, .name = "coordinator"}, now));
  for (const auto& peer : peers_) {
    STARLING_ASSIGN(
        const auto credentials,
        authority.issue_credentials(
            {.role = Role::kPeer, .name = peer->name, .addresses = {"127.0.0.1"}}, now));
    const auto directory = scratch.path() / peer->name;
    STARLING_TRY(IdentityDirectory::save(directory, credentials, {"127.0.0.1", 1}));
    STARLING_ASSIGN(peer->identity, IdentityDirectory::load(directory));
  }
  return {};
}

Result<identity::SignedRoster> ProtocolSimulation::make_roster() const {
  identity::Roster roster{.federation = kFederation, .run = "simulation", .epoch = 1};
  roster.issued = clock_.wall_now();
  roster.expires = roster.issued + std::chrono::hours(24 * 364);
  NetOptions options = experiment_.options;
  if (hands_in_all()) options.evaluate.every = 1;  // the run may end at any mixing
  // A link whose latency changes may be as good as cut, so peers wait seconds for it, not a minute.
  const bool lossy = experiment_.lossy() || experiment_.network.links_change();
  roster.settings = run_settings(options, lossy);
  for (const auto& peer : peers_) {
    roster.members.push_back(
        {peer->name, peer->identity->credentials().certificate.public_key_digest(), "127.0.0.1:1"});
  }
  return identity::SignedRoster::sign(roster, *issuer_);
}

void ProtocolSimulation::plan_splits() {
  for (const sim::Network::Split& split : experiment_.network.splits()) {
    for (const double change : {split.from, split.to}) {
      scheduler_.schedule(time_after(change), [this] { update_cuts(); });
    }
  }
}

// Splits may overlap: what counts is who is apart now.
void ProtocolSimulation::update_cuts() {
  const double now = seconds_of(scheduler_.now());
  for (Node a = 0; a < experiment_.nodes(); ++a) {
    for (Node b = 0; b < experiment_.nodes(); ++b) {
      if (a == b) continue;
      if (experiment_.network.separated_until(a, b, now)) {
        network_.cut(peers_[a]->name, peers_[b]->name);
      } else {
        network_.mend(peers_[a]->name, peers_[b]->name);
      }
    }
  }
}

// The local phase that the node is about to begin; mixing takes no time, as in the recurrences.
Duration ProtocolSimulation::phase_of(Node node) {
  const NetOptions& options = experiment_.options;
  const std::uint64_t step = peers_[node]->process->shell->report().step;
  const auto steps = std::min(static_cast<std::uint64_t>(options.train.period_at(step)),
                              options.run.steps - std::min(step, options.run.steps));
  double seconds = 0;
  for (std::uint64_t s = step; s < step + steps; ++s) {
    seconds += experiment_.population.step_seconds(node, s);
  }
  longest_phase_ = std::max(longest_phase_, from_seconds(seconds));
  return from_seconds(seconds);
}

void ProtocolSimulation::start_node(Node node) {
  Peer& peer = *peers_[node];
  if (all_away()) {  // nobody could come further since
    progress_at_ = std::min(scheduler_.now(), progress_at_ + (scheduler_.now() - left_at_));
  }
  peer.process =
      std::make_unique<Process>(scheduler_, processors_, [this, node] { return phase_of(node); });
  peer.process->shell = make_shell(node, *peer.process);
  if (const auto started = peer.process->shell->start(); !started) {
    failure_ = started.error();
    return;
  }
  peer.process->shell->take_roster(*roster_, PeerShell::Source::kIssuer);
  const double now = seconds_of(scheduler_.now());
  if (!experiment_.population.churns()) return;
  const double until = experiment_.population.up_until(node, now);
  if (until < sim::kNever)
    scheduler_.schedule(time_after(until), [this, node] { kill_node(node); });
}

void ProtocolSimulation::kill_node(Node node) {
  Peer& peer = *peers_[node];
  const PeerTransport::Counters counters = peer.process->shell->transport().counters();
  peer.before.wire_bytes_out += counters.wire_bytes_out;
  peer.before.transfers_out += counters.transfers_out;
  peer.said_before += std::exchange(peer.said, {});
  peer.process.reset();
  left_at_ = scheduler_.now();
  const double back = experiment_.population.up_from(node, seconds_of(scheduler_.now()));
  if (back < sim::kNever) scheduler_.schedule(time_after(back), [this, node] { start_node(node); });
}

std::unique_ptr<PeerShell> ProtocolSimulation::make_shell(Node node, Process& process) {
  Peer& peer = *peers_[node];
  PeerShell::Options options;
  options.directory = "gossip";
  options.listens = true;
  options.own = experiment_.options.algorithm.own;
  Rng of_process({.seed = experiment_.options.run.seed,
                  .purpose = Purpose::kBackoff,
                  .node = node,
                  .round = ++peer.starts});
  options.seed = of_process.next_u64();
  const Rng backoff({.seed = options.seed, .purpose = Purpose::kBackoff, .node = node});
  return std::make_unique<PeerShell>(
      PeerShell::World{.scheduler = scheduler_,
                       .clock = clock_,
                       .log = peer.log,
                       .identity = *peer.identity,
                       .training = process.training,
                       .mixing = process.rest,
                       .disk_work = process.rest,
                       .disk = peer.disk,
                       .connect =
                           [&](PeerTransport::Handlers handlers) {
                             return network_.attach(peer.name, std::move(handlers), backoff);
                           }},
      options, PeerData{.rows = experiment_.parts[node]},
      PeerShell::Issuer{
          .report = [this, &peer](const protocol::PeerReport& report) { count(peer, report); },
          .hand_in =
              [this, &peer](const protocol::VectorTransfer& transfer, const SharedBytes& data) {
                const auto* floats = reinterpret_cast<const float*>(data.view().data());
                const auto& model = std::get<protocol::WholeModel>(transfer.content);
                take(peer, {model.step, {floats, floats + model.floats}});
              }});
}

// Of models between evaluations the latest is kept.
void ProtocolSimulation::take(Peer& peer, HandedIn handed_in) {
  const NetOptions& options = experiment_.options;
  const std::uint64_t every = options.evaluate_every();
  const std::uint64_t step = handed_in.step;
  if (hands_in_all()) peer.latest = handed_in;
  const bool is_for_evaluation =
      step / every > peer.handed_in_until / every || step == options.run.steps;
  if (!hands_in_all() || is_for_evaluation) peer.handed_in.push_back(std::move(handed_in));
  peer.handed_in_until = std::max(peer.handed_in_until, step);
}

void ProtocolSimulation::count(Peer& peer, const protocol::PeerReport& report) {
  if (report.step > peer.furthest) {
    peer.furthest = report.step;
    progress_at_ = scheduler_.now();
  }
  peer.said = {.arrived = report.arrived,
               .late = report.late,
               .lost = report.lost,
               .staleness = report.staleness};
  totals_.node_steps += report.loss_steps;
  totals_.loss_sum += report.loss * static_cast<double>(report.loss_steps);
}

// The end of a local phase: whether peers hand in the model that is mixed after it.
bool ProtocolSimulation::is_evaluated(std::uint64_t step) const {
  const NetOptions& options = experiment_.options;
  const std::uint64_t evaluation = step - step % options.evaluate_every();
  return step == step_mixed(options, evaluation) || step == options.run.steps;
}

// At an evaluation its model is there; in between, as it reported last.
bool ProtocolSimulation::has_reached(const Peer& peer, std::uint64_t step) const {
  return (is_evaluated(step) ? peer.handed_in_until : peer.furthest) >= step;
}

bool ProtocolSimulation::have_reached(std::uint64_t step) const {
  bool any = false;
  for (const auto& peer : peers_) {
    if (!peer->process) continue;
    if (!has_reached(*peer, step)) return false;
    any = true;
  }
  return any;
}

void ProtocolSimulation::record_totals(std::uint64_t step) {
  totals_.step = step;
  totals_.virtual_seconds = seconds_of(scheduler_.now());
  totals_.traffic = {.bytes_sent = passage_.resent_bytes()};
  for (const auto& peer : peers_) {
    PeerTransport::Counters counters = peer->before;
    if (peer->process) {
      const auto now = peer->process->shell->transport().counters();
      counters.wire_bytes_out += now.wire_bytes_out;
      counters.transfers_out += now.transfers_out;
    }
    totals_.traffic += peer->said_before;
    totals_.traffic += peer->said;
    totals_.traffic.messages += counters.transfers_out;
    totals_.traffic.bytes_sent += counters.wire_bytes_out;
    // That of this evaluation, or of a later one that the node went past it to.
    while (peer->handed_in.size() > 1 && peer->handed_in.front().step < step) {
      peer->handed_in.pop_front();
    }
    if (!peer->handed_in.empty()) peer->model = peer->handed_in.front().model;
  }
}

bool ProtocolSimulation::all_away() const {
  return std::ranges::none_of(peers_, [](const auto& peer) { return peer->process != nullptr; });
}

Error ProtocolSimulation::no_progress_of_peers() const {
  std::uint64_t furthest = 0;
  for (const auto& peer : peers_) furthest = std::max(furthest, peer->furthest);
  const std::string remedy =
      experiment_.options.nodes.crash_every > Duration::zero()
          ? "nodes crash before they have caught up: raise nodes.crash-every, or lower "
            "train.local-steps"
          : "messages take too long or do not come: see the keys of [network]";
  const auto waited = std::chrono::floor<std::chrono::minutes>(scheduler_.now() - progress_at_);
  return rejected("no-progress",
                  fmt::format("no node came beyond step {} for {} of virtual time; {}", furthest,
                              format_duration(waited), remedy));
}

// What all that are there have come to by the models that they handed in.
std::uint64_t ProtocolSimulation::present_step() const {
  std::uint64_t step = experiment_.options.run.steps;
  bool any = false;
  for (const auto& peer : peers_) {
    if (!peer->process) continue;
    step = std::min(step, peer->latest.step);
    any = true;
  }
  return any ? step : 0;
}

Result<void> ProtocolSimulation::advance(std::uint64_t step, double until) {
  step = step_mixed(experiment_.options, step);
  progress_at_ = scheduler_.now();
  while (!have_reached(step) && seconds_of(scheduler_.now()) < until) {
    const bool goes_on = scheduler_.run_one();
    if (failure_) return *failure_;
    if (goes_on && scheduler_.now() - progress_at_ <= kPatience + 10 * longest_phase_) continue;
    if (!all_away()) return no_progress_of_peers();
    if (!goes_on) return all_left(fmt::format("step {}", totals_.step));
  }
  if (have_reached(step)) {
    record_totals(step);
    return {};
  }
  // Out of time between two evaluations: with the models of now.
  for (const auto& peer : peers_) {
    if (peer->latest.model.empty()) continue;
    peer->handed_in.clear();
    peer->handed_in.push_back(peer->latest);
  }
  record_totals(std::max(totals_.step, present_step()));
  return {};
}

void ProtocolSimulation::trace(Sha256& hash) const {
  for (const auto& peer : peers_) {
    const bool is_there = peer->process != nullptr;
    hash.update(as_bytes(std::span(&is_there, 1)));
  }
}

}  // namespace

Result<std::unique_ptr<NetworkSimulation>> make_protocol_simulation(const Experiment& experiment,
                                                                    ComputePool& pool) {
  if (experiment.trainers) {
    return unsupported("unsupported",
                       "whole peers are simulated with built-in models only: leave out "
                       "--real-protocol, or use 'starling-gossip launch' for a custom trainer");
  }
  if (experiment.options.attack.kind != "none") {
    return wrong_setting("unsupported",
                         "[attack] is of the simulated recurrence: leave out --real-protocol, or "
                         "set attack.kind = none");
  }
  auto simulation = std::make_unique<ProtocolSimulation>(experiment, pool);
  STARLING_TRY(simulation->begin());
  return std::unique_ptr<NetworkSimulation>(std::move(simulation));
}

}  // namespace starling::gossip
