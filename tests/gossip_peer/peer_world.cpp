// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/peer_world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/check.h"
#include "core/identity/certificate_authority.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/world_invariants.h"
#include "tests/support/temporary_directory.h"

namespace starling::testing {
namespace {

using identity::CertificateAuthority;
using identity::Role;
using sim::ProcessCrash;

// Keys and certificates cost more than a small run: made once a test program. Of a fixed time: a
// run is named after when it began, and groups and graphs are drawn by that name.
class Identities {
 public:
  Identities()
      : now_(*parse_rfc3339("2026-01-01T00:00:00Z")),
        authority_(*CertificateAuthority::make({.federation = "kitchen"}, now_)),
        issuer_(make_issuer("coordinator")),
        deputy_(make_issuer("deputy")) {}

  const identity::IdentityDirectory& of(std::size_t index) {
    while (directories_.size() <= index) {
      const std::string name = fmt::format("node-{:02}", directories_.size() + 1);
      const auto credentials = *authority_.issue_credentials(
          {.role = Role::kPeer, .name = name, .addresses = {"127.0.0.1"}}, now_);
      const auto path = directory_.path() / name;
      STARLING_CHECK(
          identity::IdentityDirectory::save(path, credentials, {"127.0.0.1", 1}).has_value());
      directories_.push_back(
          std::make_unique<identity::IdentityDirectory>(*identity::IdentityDirectory::load(path)));
    }
    return *directories_[index];
  }
  const identity::Credentials& issuer() const { return issuer_; }
  const identity::Credentials& deputy() const { return deputy_; }
  WallTime now() const { return now_; }

 private:
  identity::Credentials make_issuer(const std::string& name) const {
    return *authority_.issue_credentials({.role = Role::kIssuer, .name = name}, now_);
  }

  WallTime now_;
  CertificateAuthority authority_;
  identity::Credentials issuer_;
  identity::Credentials deputy_;
  TemporaryDirectory directory_;
  std::vector<std::unique_ptr<identity::IdentityDirectory>> directories_;
};

Identities& identities() {
  static Identities all;
  return all;
}

// Does something on a turn of a process.
using Turn = std::function<void(std::function<void()> work)>;

Duration drawn_below(Rng& rng, Duration most) {
  return Duration(static_cast<Duration::rep>(
      rng.below(static_cast<std::uint64_t>(std::max<Duration::rep>(most.count(), 1)))));
}

}  // namespace

gossip::NetworkRun run_of(const gossip::Experiment& experiment) {
  identity::Roster roster{.federation = "kitchen", .run = "run-1", .epoch = 1};
  gossip::NetOptions options = experiment.options;
  roster.settings = gossip::run_settings(options, true);
  roster.members.resize(experiment.nodes());
  const data::Dataset& dataset = *experiment.parts.front().dataset;
  auto run = gossip::derive_run(roster, dataset.shape(), dataset.classes());
  EXPECT_TRUE(run) << run.error().message();
  return std::move(*run);
}

// Computed in the turn that submits it, completed a while later.
class PeerWorld::DelayedComputation final : public Computation {
 public:
  // `free_at`: of the worker, which several may share; must outlive it.
  DelayedComputation(sim::VirtualScheduler& scheduler, TimePoint& free_at,
                     std::function<Duration()> takes)
      : scheduler_(scheduler), free_at_(free_at), takes_(std::move(takes)) {}

  void submit(Work work, std::function<void()> done) override {
    work(0);
    free_at_ = std::max(free_at_, scheduler_.now()) + takes_();
    if (done) scheduler_.schedule(free_at_, std::move(done));
  }

 private:
  sim::VirtualScheduler& scheduler_;
  TimePoint& free_at_;
  std::function<Duration()> takes_;
};

// The same, and tells when something is submitted, and when the process hears that it is done.
class PeerWorld::WatchedComputation final : public Computation {
 public:
  WatchedComputation(Computation& computation, std::function<void()> submits, Turn turn)
      : computation_(computation), submits_(std::move(submits)), turn_(std::move(turn)) {}

  void submit(Work work, std::function<void()> done) override {
    submits_();
    computation_.submit(std::move(work), [turn = turn_, done = std::move(done)] {
      turn([done] {
        if (done) done();
      });
    });
  }

 private:
  Computation& computation_;
  std::function<void()> submits_;
  Turn turn_;
};

class PeerWorld::WatchedScheduler final : public Scheduler {
 public:
  WatchedScheduler(Scheduler& scheduler, Turn turn)
      : scheduler_(scheduler), turn_(std::move(turn)) {}

  TimePoint now() const override { return scheduler_.now(); }
  void post(std::function<void()> work) override { scheduler_.post(noticed(std::move(work))); }
  std::unique_ptr<Timer> make_timer(std::function<void()> on_time) override {
    return scheduler_.make_timer(noticed(std::move(on_time)));
  }

 private:
  std::function<void()> noticed(std::function<void()> work) const {
    return [turn = turn_, work = std::move(work)] { turn(work); };
  }

  Scheduler& scheduler_;
  Turn turn_;
};

class PeerWorld::PeerLog final : public Log {
 public:
  PeerLog(PeerWorld& world, std::size_t index, std::string name)
      : world_(world), index_(index), name_(std::move(name)) {}
  void write(LogLevel level, std::string_view line) override {
    world_.invariants_->said(index_, line);
    if (level < LogLevel::kInfo) return;
    const double seconds =
        std::chrono::duration<double>(world_.scheduler.now() - TimePoint{}).count();
    world_.lines.push_back(fmt::format("{:9.3f} {}: {}", seconds, name_, line));
  }

 private:
  PeerWorld& world_;
  const std::size_t index_;
  const std::string name_;
};

PeerWorld::PeerWorld(const gossip::NetOptions& net, std::uint64_t with_seed, bool lossy)
    : network(scheduler,
              {.passage = [this](const auto& from, const auto& to,
                                 std::size_t bytes) { return passage(from, to, bytes); }}),
      rng({.seed = with_seed, .purpose = Purpose::kTest}),
      seed(with_seed),
      experiment(gossip::testing::prepared(net)),
      phase([this] { return drawn_below(rng, std::chrono::milliseconds(20)); }),
      lossy_(lossy),
      began_(identities().now()) {
  for (std::uint32_t i = 0; i < net.topology.nodes; ++i) {
    auto peer = std::make_unique<Peer>(*this, i);
    peer->name = fmt::format("node-{:02}", i + 1);
    peer->identity = &identities().of(i);
    logs_.push_back(std::make_unique<PeerLog>(*this, i, peer->name));
    peers.push_back(std::move(peer));
  }
  invariants_ = std::make_unique<WorldInvariants>(*this);
}

PeerWorld::~PeerWorld() {
  for (const auto& peer : peers) peer->process.reset();
}

Duration PeerWorld::passage(const std::string& from, const std::string& to, std::size_t bytes) {
  const Duration usual = std::chrono::milliseconds(1) +
                         drawn_below(rng, std::chrono::milliseconds(4)) +
                         std::chrono::nanoseconds(10 * bytes);
  const auto slower = slow.find({from, to});
  return slower == slow.end() ? usual : slower->second * usual;
}

WallTime PeerWorld::wall_now() const {
  return began_ + std::chrono::floor<std::chrono::milliseconds>(scheduler.now() - TimePoint{});
}

void PeerWorld::start(std::size_t index) {
  Peer& peer = *peers[index];
  peer.wanted = true;
  ++peer.starts;
  invariants_->starting(index);
  peer.process = std::make_unique<Process>();
  Process& process = *peer.process;
  process.training_on_worker = std::make_unique<DelayedComputation>(
      scheduler, process.worker_free,
      [this, &peer] { return peer.training_time ? peer.training_time() : phase(); });
  process.mixing_on_worker = std::make_unique<DelayedComputation>(
      scheduler, process.worker_free,
      [this, &peer] { return peer.mixing_time ? peer.mixing_time() : phase(); });
  const Turn on_turn = [this, index](std::function<void()> work) { turn(index, std::move(work)); };
  process.turns = std::make_unique<WatchedScheduler>(scheduler, on_turn);
  process.training = std::make_unique<WatchedComputation>(
      *process.training_on_worker,
      [this, index, &peer] {
        ++peer.computations;
        invariants_->trains(index);
      },
      on_turn);
  process.mixing = std::make_unique<WatchedComputation>(
      *process.mixing_on_worker, [&peer] { ++peer.computations; }, on_turn);
  process.disk = std::make_unique<DelayedComputation>(scheduler, process.disk_free, [this] {
    return drawn_below(rng, std::chrono::milliseconds(5));
  });
  process.disk_work = std::make_unique<WatchedComputation>(
      *process.disk, [this, index] { invariants_->checkpoint_written(index); }, on_turn);
  gossip::PeerShell::Options own = options;
  own.directory = "gossip";
  own.listens = true;
  own.seed = rng.next_u64();
  const auto attach = [&](gossip::PeerTransport::Handlers handlers) {
    return network.attach(peer.name, std::move(handlers),
                          Rng({.seed = own.seed, .purpose = Purpose::kBackoff}));
  };
  process.shell = std::make_unique<gossip::PeerShell>(
      gossip::PeerShell::World{.scheduler = *process.turns,
                               .clock = peer.clock,
                               .log = *logs_[index],
                               .identity = *peer.identity,
                               .training = *process.training,
                               .mixing = *process.mixing,
                               .disk_work = *process.disk_work,
                               .disk = peer.disk,
                               .connect =
                                   [&](gossip::PeerTransport::Handlers handlers) {
                                     return invariants_->watch(index, std::move(handlers), attach);
                                   }},
      own, gossip::PeerData{.rows = experiment.parts[index]},
      gossip::PeerShell::Issuer{
          .report = [&peer](const protocol::PeerReport& report) { peer.last = report; },
          .hand_in =
              [&peer](const protocol::VectorTransfer& transfer, const SharedBytes& data) {
                const auto& model = std::get<protocol::WholeModel>(transfer.content);
                const auto* floats = reinterpret_cast<const float*>(data.view().data());
                peer.models.emplace_back(model, std::vector<float>(floats, floats + model.floats));
              }});
  const auto started = process.shell->start();
  EXPECT_TRUE(started) << started.error().message();
  invariants_->started(index);
}

void PeerWorld::start_all() {
  for (std::size_t i = 0; i < peers.size(); ++i) start(i);
}

void PeerWorld::begin() {
  start_all();
  publish(roster(1));
}

void PeerWorld::kill(std::size_t index) {
  Peer& peer = *peers[index];
  if (!peer.process) return;
  peer.process.reset();
  invariants_->ending(index);
  ++peer.kills;
}

void PeerWorld::stop(std::size_t index) {
  peers[index]->wanted = false;
  bool closed = false;
  close(index, [&closed] { closed = true; });
  run_until([&] { return closed; }, std::chrono::seconds(10), peers[index]->name + " has stopped");
}

void PeerWorld::close(std::size_t index, std::function<void()> closed) {
  const Peer& peer = *peers[index];
  STARLING_CHECK(!std::exchange(peer.process->closing, true));
  invariants_->closing(index);
  peer.shell().close([this, index, process = peer.starts, closed = std::move(closed)] {
    Peer& closing = *peers[index];
    if (!closing.process || closing.starts != process) return;  // killed meanwhile
    invariants_->closed(index);
    closing.process.reset();
    invariants_->ending(index);
    closed();
  });
  network.leave(peer.name);
}

void PeerWorld::turn(std::size_t index, std::function<void()> work) {
  Process* const process = peers[index]->process.get();
  if (process != nullptr && process->frozen_since) {
    return process->waiting.push_back(std::move(work));
  }
  invariants_->turn(index);
  work();
}

void PeerWorld::freeze(std::size_t index) {
  Peer& peer = *peers[index];
  if (!peer.process || peer.process->frozen_since) return;
  peer.process->frozen_since = scheduler.now();
  network.freeze(peer.name);
}

void PeerWorld::thaw(std::size_t index) {
  const Peer& peer = *peers[index];
  if (!is_frozen(index)) return;
  invariants_->thawed(index, scheduler.now() - *std::exchange(peer.process->frozen_since, {}));
  for (auto& work : std::exchange(peer.process->waiting, {})) {
    scheduler.post([this, index, process = peer.starts, work = std::move(work)] {
      if (peers[index]->process && peers[index]->starts == process) turn(index, work);
    });
  }
  network.thaw(peer.name);
}

bool PeerWorld::is_frozen(std::size_t index) const {
  return peers[index]->process && peers[index]->process->frozen_since;
}

void PeerWorld::disturb_disk(std::size_t index, sim::SimulatedDisk::FaultInjector injector) {
  invariants_->disk_disturbed(index);
  peers[index]->disk.set_fault_injector(std::move(injector));
}

void PeerWorld::lose_disk(std::size_t index) {
  STARLING_CHECK(!peers[index]->process);
  sim::SimulatedDisk& disk = peers[index]->disk;
  const std::filesystem::path directory = "gossip";
  const auto entries = disk.list(directory);
  STARLING_CHECK(entries.has_value());
  for (const DiskEntry& entry : *entries) {
    STARLING_CHECK(disk.remove(directory / entry.name).has_value());
  }
  invariants_->disk_lost(index);
}

void PeerWorld::cut_off(const std::set<std::size_t>& group) {
  for (const std::size_t in : group) {
    for (std::size_t out = 0; out < peers.size(); ++out) {
      if (group.contains(out)) continue;
      network.cut(peers[in]->name, peers[out]->name);
      network.cut(peers[out]->name, peers[in]->name);
    }
  }
}

void PeerWorld::mend(const std::set<std::size_t>& group) {
  for (const std::size_t in : group) {
    for (const auto& out : peers) {
      network.mend(peers[in]->name, out->name);
      network.mend(out->name, peers[in]->name);
    }
  }
}

void PeerWorld::calm() {
  slow.clear();
  for (std::size_t i = 0; i < peers.size(); ++i) thaw(i);
  for (const auto& peer : peers) {
    peer->disk.set_fault_injector({});
    peer->clock.off = {};
    for (const auto& other : peers) network.mend(peer->name, other->name);
  }
  invariants_->calm();
}

identity::SignedRoster PeerWorld::roster(std::uint64_t epoch, std::vector<std::size_t> members,
                                         Duration lifetime, const std::string& run) const {
  if (members.empty()) {
    for (std::size_t i = 0; i < peers.size(); ++i) members.push_back(i);
  }
  identity::Roster roster{.federation = "kitchen", .run = run, .epoch = epoch};
  roster.issued = wall_now();
  roster.expires = roster.issued + std::chrono::floor<std::chrono::milliseconds>(lifetime);
  roster.revoked = revoked_;
  gossip::NetOptions net = experiment.options;
  roster.settings = gossip::run_settings(net, lossy_);
  roster.settings.emplace_back(identity::kRunIdKey, "0123456789abcdef@" + format_rfc3339(began_));
  for (const std::size_t index : members) {
    const Peer& peer = *peers[index];
    roster.members.push_back({peer.name,
                              peer.identity->credentials().certificate.public_key_digest(),
                              fmt::format("127.0.0.1:{}", 1000 + index)});
  }
  return sign(roster);
}

identity::SignedRoster PeerWorld::stopped_roster(std::uint64_t epoch) const {
  identity::Roster stopped = roster(epoch).roster();
  stopped.settings = identity::stopped_settings();
  return sign(stopped);
}

identity::SignedRoster PeerWorld::sign(const identity::Roster& roster, Signer signer) const {
  identity::Roster said = roster;
  if (signer == Signer::kDeputy) said.revoked.clear();
  auto signed_roster = identity::SignedRoster::sign(
      said, signer == Signer::kIssuer ? identities().issuer() : identities().deputy());
  EXPECT_TRUE(signed_roster) << signed_roster.error().message();
  return *signed_roster;
}

void PeerWorld::revoke_deputy() {
  revoked_ = {identities().deputy().certificate.public_key_digest()};
}

void PeerWorld::give(std::size_t index, const identity::SignedRoster& roster) {
  scheduler.post([this, index, roster] {
    if (!peers[index]->process) return;
    turn(index, [this, index, roster] {
      peers[index]->shell().take_roster(roster, gossip::PeerShell::Source::kIssuer);
    });
  });
}

void PeerWorld::publish(const identity::SignedRoster& roster) {
  for (std::size_t i = 0; i < peers.size(); ++i) give(i, roster);
}

void PeerWorld::at(Duration time, std::function<void()> event) {
  scheduler.schedule(TimePoint{} + time, std::move(event));
}

void PeerWorld::run_one() {
  try {
    STARLING_CHECK(scheduler.run_one());
  } catch (const ProcessCrash& crash) {
    kill(crash.process);
    scheduler.schedule(scheduler.now() + restart_after, [this, index = crash.process] {
      if (peers[index]->wanted && !peers[index]->process) start(index);
    });
  }
  invariants_->happened();
}

bool PeerWorld::run_until(const std::function<bool()>& done, Duration within,
                          const std::string& what) {
  const TimePoint until = scheduler.now() + within;
  while (!done()) {
    if (scheduler.now() > until) {
      ADD_FAILURE() << "seed " << seed << ": not within "
                    << std::chrono::duration<double>(within).count() << " s: " << what << status();
      return false;
    }
    run_one();
  }
  return true;
}

void PeerWorld::run_for(Duration time) {
  const TimePoint end = scheduler.now() + time;
  scheduler.schedule(end, [] {});
  while (scheduler.now() < end) run_one();
}

void PeerWorld::run_to_exchange(std::size_t index, protocol::Exchange exchange) {
  run_until([&] { return progress(index).exchange >= exchange; }, std::chrono::hours(1),
            fmt::format("{} comes to exchange {}", peers[index]->name, exchange));
}

void PeerWorld::run_to_end() {
  run_until([&] { return all_finished(); }, std::chrono::hours(1), "all have finished");
}

bool PeerWorld::all_finished() const {
  return std::ranges::all_of(peers, [](const auto& peer) {
    return !peer->wanted || (peer->process && peer->shell().is_finished());
  });
}

std::string PeerWorld::status() const {
  std::string text;
  for (const auto& peer : peers) {
    text += fmt::format("\n{} ({} kills, clock off by {} s): ", peer->name, peer->kills,
                        std::chrono::duration_cast<std::chrono::seconds>(peer->clock.off).count());
    if (!peer->process) {
      text += "not running";
      continue;
    }
    const protocol::PeerReport report = peer->shell().report();
    text += fmt::format("epoch {} {} exchange {} step {} heard {}/{} reachable {} {}", report.epoch,
                        report.state, report.exchange, report.step, report.neighbours,
                        report.expected, report.reachable, report.problem);
  }
  const std::size_t last = std::min<std::size_t>(lines.size(), 400);
  text += fmt::format(
      "\n{}", fmt::join(lines.end() - static_cast<std::ptrdiff_t>(last), lines.end(), "\n"));
  return text;
}

const gossip::EpochSession& PeerWorld::session(std::size_t index) const {
  const gossip::EpochSession* const session = peers[index]->shell().machine().session();
  STARLING_CHECK(session != nullptr);
  return *session;
}

gossip::TrainingProgress PeerWorld::progress(std::size_t index) const {
  const auto& process = peers[index]->process;
  const auto* const session = process ? process->shell->machine().session() : nullptr;
  return session == nullptr ? gossip::TrainingProgress() : session->training().progress();
}

std::vector<std::string> PeerWorld::said(std::size_t index) const {
  const std::string mark = " " + peers[index]->name + ": ";
  std::vector<std::string> said;
  for (const std::string& line : lines) {
    const std::size_t at = line.find_first_not_of(" 0123456789.");  // after the time
    if (line.compare(at - 1, mark.size(), mark) == 0)
      said.push_back(line.substr(at - 1 + mark.size()));
  }
  return said;
}

int PeerWorld::copies_begun(std::size_t index) const {
  return static_cast<int>(std::ranges::count_if(said(index), [](const std::string& line) {
    return line.find("taking the model of") != line.npos ||
           line.find("taking their model") != line.npos;
  }));
}

std::vector<float> PeerWorld::model(std::size_t index) const {
  const auto& models = peers[index]->models;
  return models.empty() ? std::vector<float>() : models.back().second;
}

}  // namespace starling::testing
