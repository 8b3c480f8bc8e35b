// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/peer_world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/check.h"
#include "core/identity/certificate_authority.h"
#include "gossip/peer/network_run.h"
#include "tests/gossip_peer/fake_network.h"
#include "tests/support/temporary_directory.h"

namespace starling::testing {
namespace {

using identity::CertificateAuthority;
using identity::Role;
using sim::ProcessCrash;

// Keys and certificates cost more than a small run: made once a test program.
class Identities {
 public:
  Identities()
      : now_(SystemClock().wall_now()),
        authority_(*CertificateAuthority::make({.federation = "kitchen"}, now_)),
        issuer_(*authority_.issue_credentials(
            {.role = Role::kCoordinator, .name = "coordinator", .addresses = {"127.0.0.1"}},
            now_)) {}

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
  WallTime now() const { return now_; }

 private:
  WallTime now_;
  CertificateAuthority authority_;
  identity::Credentials issuer_;
  TemporaryDirectory directory_;
  std::vector<std::unique_ptr<identity::IdentityDirectory>> directories_;
};

Identities& identities() {
  static Identities all;
  return all;
}

Duration drawn_below(Rng& rng, Duration most) {
  return Duration(static_cast<Duration::rep>(
      rng.below(static_cast<std::uint64_t>(std::max<Duration::rep>(most.count(), 1)))));
}

}  // namespace

// Computed in the turn that submits it, completed a while later.
class PeerWorld::DelayedComputation final : public Computation {
 public:
  DelayedComputation(sim::VirtualScheduler& scheduler, std::function<Duration()> takes)
      : scheduler_(scheduler), takes_(std::move(takes)) {}

  void submit(Work work, std::function<void()> done) override {
    work(0);
    free_at_ = std::max(free_at_, scheduler_.now()) + takes_();
    if (done) scheduler_.schedule(free_at_, std::move(done));
  }

 private:
  sim::VirtualScheduler& scheduler_;
  std::function<Duration()> takes_;
  TimePoint free_at_{};
};

class PeerWorld::PeerLog final : public Log {
 public:
  PeerLog(PeerWorld& world, std::string name) : world_(world), name_(std::move(name)) {}
  void write(LogLevel level, std::string_view line) override {
    if (level < LogLevel::kInfo) return;
    const double seconds =
        std::chrono::duration<double>(world_.scheduler.now() - TimePoint{}).count();
    world_.lines.push_back(fmt::format("{:9.3f} {}: {}", seconds, name_, line));
  }

 private:
  PeerWorld& world_;
  std::string name_;
};

PeerWorld::PeerWorld(const gossip::NetOptions& net, std::uint64_t with_seed, bool lossy)
    : network(scheduler, {.passage =
                              [this](const auto&, const auto&, std::size_t bytes) {
                                return std::chrono::milliseconds(1) +
                                       drawn_below(rng, std::chrono::milliseconds(4)) +
                                       std::chrono::nanoseconds(10 * bytes);
                              }}),
      rng({.seed = with_seed, .purpose = Purpose::kTest}),
      seed(with_seed),
      experiment(prepared(net)),
      phase([this] { return drawn_below(rng, std::chrono::milliseconds(20)); }),
      lossy_(lossy),
      began_(identities().now()) {
  for (std::uint32_t i = 0; i < net.topology.nodes; ++i) {
    auto peer = std::make_unique<Peer>(*this, i);
    peer->name = fmt::format("node-{:02}", i + 1);
    peer->identity = &identities().of(i);
    logs_.push_back(std::make_unique<PeerLog>(*this, peer->name));
    peers.push_back(std::move(peer));
  }
}

PeerWorld::~PeerWorld() {
  for (const auto& peer : peers) peer->process.reset();
}

WallTime PeerWorld::wall_now() const {
  return began_ + std::chrono::floor<std::chrono::milliseconds>(scheduler.now() - TimePoint{});
}

void PeerWorld::start(std::size_t index) {
  Peer& peer = *peers[index];
  peer.wanted = true;
  peer.process = std::make_unique<Process>();
  Process& process = *peer.process;
  process.training = std::make_unique<DelayedComputation>(scheduler, [this] { return phase(); });
  process.disk_work = std::make_unique<DelayedComputation>(
      scheduler, [this] { return drawn_below(rng, std::chrono::milliseconds(5)); });
  gossip::PeerShell::Options own = options;
  own.directory = "gossip";
  own.listens = true;
  own.seed = rng.next_u64();
  process.shell = std::make_unique<gossip::PeerShell>(
      gossip::PeerShell::World{.scheduler = scheduler,
                               .clock = peer.clock,
                               .log = *logs_[index],
                               .identity = *peer.identity,
                               .training = *process.training,
                               .mixing = *process.training,
                               .disk_work = *process.disk_work,
                               .disk = peer.disk,
                               .connect =
                                   [&](gossip::PeerTransport::Handlers handlers) {
                                     return network.attach(
                                         peer.name, std::move(handlers),
                                         Rng({.seed = own.seed, .purpose = Purpose::kBackoff}));
                                   }},
      own, gossip::PeerData{.rows = experiment.parts[index]},
      gossip::PeerShell::Issuer{
          .report = [&peer](const protocol::PeerReport& report) { peer.last = report; },
          .hand_in =
              [&peer](const protocol::Parcel& parcel, const SharedBytes& data) {
                const auto* floats = reinterpret_cast<const float*>(data.view().data());
                peer.models.emplace_back(parcel, std::vector<float>(floats, floats + parcel.first));
              }});
  const auto started = process.shell->start();
  EXPECT_TRUE(started) << started.error().message();
}

void PeerWorld::start_all() {
  for (std::size_t i = 0; i < peers.size(); ++i) start(i);
}

void PeerWorld::kill(std::size_t index) {
  Peer& peer = *peers[index];
  if (!peer.process) return;
  peer.process.reset();
  ++peer.kills;
}

void PeerWorld::stop(std::size_t index) {
  Peer& peer = *peers[index];
  peer.wanted = false;
  bool closed = false;
  peer.shell().close([&closed] { closed = true; });
  network.leave(peer.name);
  run_until([&] { return closed; }, std::chrono::seconds(10), peer.name + " has stopped");
  peer.process.reset();
}

identity::SignedRoster PeerWorld::roster(std::uint64_t epoch, std::vector<std::size_t> members,
                                         Duration lifetime, const std::string& run) const {
  if (members.empty()) {
    for (std::size_t i = 0; i < peers.size(); ++i) members.push_back(i);
  }
  identity::Roster roster{.federation = "kitchen", .run = run, .epoch = epoch};
  roster.issued = wall_now();
  roster.expires = roster.issued + std::chrono::floor<std::chrono::milliseconds>(lifetime);
  gossip::NetOptions net = experiment.options;
  roster.settings = gossip::run_settings(net, lossy_);
  roster.settings.emplace_back(identity::kRunIdKey, "0123456789abcdef@" + format_rfc3339(began_));
  for (const std::size_t index : members) {
    const Peer& peer = *peers[index];
    roster.members.push_back({peer.name,
                              peer.identity->credentials().certificate.public_key_digest(),
                              fmt::format("127.0.0.1:{}", 1000 + index)});
  }
  auto signed_roster = identity::SignedRoster::sign(roster, identities().issuer());
  EXPECT_TRUE(signed_roster) << signed_roster.error().message();
  return *signed_roster;
}

identity::SignedRoster PeerWorld::stopped_roster(std::uint64_t epoch) const {
  identity::Roster stopped = roster(epoch).roster();
  stopped.settings = identity::stopped_settings();
  auto signed_roster = identity::SignedRoster::sign(stopped, identities().issuer());
  EXPECT_TRUE(signed_roster) << signed_roster.error().message();
  return *signed_roster;
}

void PeerWorld::give(std::size_t index, const identity::SignedRoster& roster) {
  scheduler.post([this, index, roster] {
    const Peer& peer = *peers[index];
    if (peer.process) peer.shell().take_roster(roster, gossip::PeerShell::Source::kIssuer);
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

bool PeerWorld::all_finished() const {
  return std::ranges::all_of(peers, [](const auto& peer) {
    return !peer->wanted || (peer->process && peer->shell().is_finished());
  });
}

std::string PeerWorld::status() const {
  std::string text;
  for (const auto& peer : peers) {
    text += fmt::format("\n{} ({} kills): ", peer->name, peer->kills);
    if (!peer->process) {
      text += "not running";
      continue;
    }
    const protocol::PeerReport report = peer->shell().report();
    text += fmt::format("epoch {} {} exchange {} step {} heard {}/{} reachable {} {}", report.epoch,
                        report.state, report.exchange, report.step, report.neighbours,
                        report.expected, report.reachable, report.problem);
  }
  const std::size_t last = std::min<std::size_t>(lines.size(), 40);
  text += fmt::format(
      "\n{}", fmt::join(lines.end() - static_cast<std::ptrdiff_t>(last), lines.end(), "\n"));
  return text;
}

std::vector<float> PeerWorld::model(std::size_t index) const {
  const auto& models = peers[index]->models;
  return models.empty() ? std::vector<float>() : models.back().second;
}

}  // namespace starling::testing
