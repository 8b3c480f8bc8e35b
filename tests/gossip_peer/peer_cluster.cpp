// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/peer_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "gossip/peer/network_run.h"
#include "gossip/simulation/network_simulation.h"
#include "tests/gossip/simulation_cases.h"

namespace starling::testing {
namespace {

using identity::CertificateAuthority;
using identity::Role;

}  // namespace

void PeerCluster::Lines::write(LogLevel level, std::string_view line) {
  if (level < LogLevel::kInfo) return;
  const std::scoped_lock lock(mutex_);
  lines_.emplace_back(line);
}

std::size_t PeerCluster::Lines::count(std::string_view part) const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(
      lines_, [&](const std::string& line) { return line.find(part) != std::string::npos; }));
}

std::string PeerCluster::Lines::all() const {
  const std::scoped_lock lock(mutex_);
  return fmt::format("{}", fmt::join(lines_, "\n"));
}

PeerCluster::PeerCluster(const gossip::NetOptions& net, bool lossy)
    : experiment(gossip::testing::prepared(net)),
      authority(*CertificateAuthority::make({.federation = "kitchen"}, SystemClock().wall_now())),
      lossy_(lossy),
      issuer_(*authority.issue_credentials({.role = Role::kIssuer, .name = "coordinator"},
                                           clock.wall_now())) {
  options.membership.probe_period = std::chrono::milliseconds(100);
  options.report_every = std::chrono::milliseconds(20);
  for (std::uint32_t i = 0; i < net.topology.nodes; ++i) {
    auto peer = std::make_unique<Peer>();
    peer->name = fmt::format("node-{:02}", i + 1);
    peer->directory = directory_.path() / peer->name;
    const auto credentials = *authority.issue_credentials(
        {.role = Role::kPeer, .name = peer->name, .addresses = {"127.0.0.1"}}, clock.wall_now());
    EXPECT_TRUE(identity::IdentityDirectory::save(peer->directory / "identity", credentials,
                                                  {"127.0.0.1", 1}));
    peer->identity = std::make_unique<identity::IdentityDirectory>(
        *identity::IdentityDirectory::load(peer->directory / "identity"));
    peers.push_back(std::move(peer));
  }
}

PeerCluster::~PeerCluster() {
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (peers[i]->node) stop(i);
  }
}

void PeerCluster::shorten_timeouts() {
  options.patience_min = std::chrono::milliseconds(300);
  options.patience_max = std::chrono::seconds(2);
}

void PeerCluster::start(std::size_t index) {
  Peer& peer = *peers[index];
  gossip::PeerNode::Options own = options;
  own.directory = peer.directory / "gossip";
  if (!undialled.contains(index)) own.links.listen = identity::HostPort{"127.0.0.1", peer.port};
  own.seed = options.seed + index;
  peer.node = std::make_unique<gossip::PeerNode>(
      gossip::PeerNode::World{loop, clock, log, *peer.identity}, own,
      trainer ? gossip::PeerData{.trainer = trainer(index)}
              : gossip::PeerData{.rows = experiment.parts[index]},
      gossip::PeerShell::Issuer{
          .report =
              [&peer](const protocol::PeerReport& report) {
                peer.last = report;
                peer.trained += report.loss_steps;
              },
          .hand_in =
              [&peer](const protocol::VectorTransfer& transfer, const SharedBytes& data) {
                const auto& model = std::get<protocol::WholeModel>(transfer.content);
                const auto* floats = reinterpret_cast<const float*>(data.view().data());
                peer.models.emplace_back(model, std::vector<float>(floats, floats + model.floats));
                peer.step_known.push_back(peer.last ? peer.last->step : 0);
              }},
      relay ? relay(peer.name) : gossip::RelayLine::Carrier());
  const auto started = peer.node->start();
  ASSERT_TRUE(started) << started.error().message();
  peer.port = peer.node->links().port();
  peer.running = std::make_unique<net::TaskGroup>(loop);
  peer.running->spawn(peer.node->run());
}

void PeerCluster::start_all() {
  for (std::size_t i = 0; i < peers.size(); ++i) start(i);
}

void PeerCluster::stop(std::size_t index) {
  Peer& peer = *peers[index];
  peer.node->request_stop();
  loop.run_task(peer.running->wait());
  peer.node.reset();
}

identity::SignedRoster PeerCluster::roster(std::uint64_t epoch, std::vector<std::size_t> members,
                                           Duration lifetime, const std::string& run) const {
  if (members.empty()) {
    for (std::size_t i = 0; i < peers.size(); ++i) members.push_back(i);
  }
  identity::Roster roster{.federation = "kitchen", .run = run, .epoch = epoch};
  roster.issued = clock.wall_now();
  roster.expires = roster.issued + std::chrono::ceil<std::chrono::milliseconds>(lifetime);
  gossip::NetOptions net = experiment.options;
  roster.settings = gossip::run_settings(net, lossy_);
  if (!run_id.empty()) roster.settings.emplace_back(identity::kRunIdKey, run_id);
  for (const std::size_t index : members) {
    const Peer& peer = *peers[index];
    roster.members.push_back(
        {peer.name, peer.identity->credentials().certificate.public_key_digest(),
         undialled.contains(index) ? "" : fmt::format("127.0.0.1:{}", peer.port)});
  }
  auto signed_roster = identity::SignedRoster::sign(roster, issuer_);
  EXPECT_TRUE(signed_roster) << signed_roster.error().message();
  return *signed_roster;
}

identity::SignedRoster PeerCluster::stopped_roster(std::uint64_t epoch) const {
  identity::Roster stopped = roster(epoch).roster();
  stopped.settings = identity::stopped_settings();
  auto signed_roster = identity::SignedRoster::sign(stopped, issuer_);
  EXPECT_TRUE(signed_roster) << signed_roster.error().message();
  return *signed_roster;
}

void PeerCluster::publish(const identity::SignedRoster& roster) {
  for (const auto& peer : peers) {
    if (peer->node) peer->node->peer().take_roster(roster, gossip::PeerShell::Source::kOther);
  }
}

net::Async<void> PeerCluster::wait_for(std::function<bool()> done) {
  const TimePoint deadline = loop.now() + std::chrono::minutes(1);
  timed_out_ = false;
  while (!done()) {
    timed_out_ = loop.now() > deadline;
    if (timed_out_) break;
    const TimePoint next = loop.now() + std::chrono::milliseconds(2);
    co_await net::sleep_until(loop, next);
  }
}

void PeerCluster::run_until(const std::function<bool()>& done, const std::string& what) {
  loop.run_task(wait_for(done));
  if (!timed_out_) return;
  std::string states;
  for (const auto& peer : peers) {
    if (!peer->last) continue;
    states += fmt::format("\n{}: {} exchange {} step {} heard {}/{} reachable {} {}", peer->name,
                          peer->last->state, peer->last->exchange, peer->last->step,
                          peer->last->neighbours, peer->last->expected, peer->last->reachable,
                          peer->last->problem);
  }
  FAIL() << "after a minute still not: " << what << states;
}

void PeerCluster::run_until_finished() {
  run_until(
      [this] {
        for (const auto& peer : peers) {
          if (peer->node && !peer->node->peer().is_finished()) return false;
        }
        return true;
      },
      "all peers have finished");
}

std::vector<float> PeerCluster::model(std::size_t index) const {
  const auto& models = peers[index]->models;
  return models.empty() ? std::vector<float>() : models.back().second;
}

std::vector<std::vector<float>> simulated_models(const gossip::Experiment& experiment) {
  ComputePool pool(1);
  const auto simulation = gossip::make_simulation(experiment, pool);
  const auto advanced =
      simulation->advance(experiment.options.run.steps, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(advanced) << advanced.error().message();
  std::vector<std::vector<float>> models;
  for (gossip::Node node = 0; node < experiment.nodes(); ++node) {
    const auto model = simulation->model(node);
    models.emplace_back(model.begin(), model.end());
  }
  return models;
}

}  // namespace starling::testing
