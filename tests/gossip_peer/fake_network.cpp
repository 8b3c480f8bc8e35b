// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/fake_network.h"

#include <fmt/format.h>

#include "gossip/peer/network_run.h"

namespace starling::testing {
gossip::Experiment prepared(const gossip::NetOptions& options) {
  auto experiment = gossip::prepare(options);
  EXPECT_TRUE(experiment) << experiment.error().message();
  return std::move(*experiment);
}

namespace {

gossip::NetworkRun derived(const gossip::Experiment& experiment, std::size_t members) {
  identity::Roster roster{.federation = "kitchen", .run = "run-1", .epoch = 1};
  gossip::NetOptions options = experiment.options;
  roster.settings = gossip::run_settings(options, true);
  roster.members.resize(members);
  const data::Dataset& dataset = *experiment.parts.front().dataset;
  auto run = gossip::derive_run(roster, dataset.shape(), dataset.classes());
  EXPECT_TRUE(run) << run.error().message();
  return std::move(*run);
}

}  // namespace

FakeNetwork::FakeNetwork(const gossip::NetOptions& options, std::uint64_t seed)
    : experiment(prepared(options)),
      run(derived(experiment, experiment.nodes())),
      rng({.seed = seed}),
      run_now_(&run) {
  patience = {.min = std::chrono::milliseconds(50),
              .max = std::chrono::seconds(1),
              .start = std::chrono::milliseconds(200)};
  for (Member member = 0; member < experiment.nodes(); ++member) {
    peers.push_back(std::make_unique<Peer>(*this, member));
  }
}

void FakeNetwork::Peer::send(Member to, protocol::VectorTransfer transfer, SharedBytes data) {
  EXPECT_EQ(data.size(), protocol::payload_bytes(transfer));
  if (!network_.link(self_, to).up) return;
  if (network_.on_send) network_.on_send(self_, to, transfer);
  transfer.epoch = 1;
  if (network_.falsify) data = network_.falsify(self_, std::move(data));
  carry(to, [from = self_, transfer, data](gossip::TrainingProtocol& receiver) {
    if (receiver.check(from, transfer)) {
      receiver.take(from, {transfer, data});
    } else {
      receiver.take_unused(from, transfer);
    }
  });
}

void FakeNetwork::Peer::send(Member to, protocol::ReduceNote note) {
  note.epoch = 1;
  carry(to,
        [from = self_, note](gossip::TrainingProtocol& receiver) { receiver.take(from, note); });
}

void FakeNetwork::Peer::carry(Member to, std::function<void(gossip::TrainingProtocol&)> arrive) {
  Link& link = network_.link(self_, to);
  if (!link.up) return;
  const Duration latency = from_seconds(network_.rng.uniform(0.001, 0.01));
  const bool waits = network_.pulled_.contains(self_) != network_.pulled_.contains(to);
  const TimePoint leaves = waits ? std::max(network_.now, network_.plugged_in_) : network_.now;
  link.busy_until = std::max(link.busy_until, leaves + latency);
  network_.at(link.busy_until,
              [this, to, arrive = std::move(arrive), generation = link.generation, epoch = run] {
                const Link& then = network_.link(self_, to);
                const Peer& receiver = *network_.peers[to];
                if (!then.up || then.generation != generation || receiver.training == nullptr)
                  return;
                if (receiver.run == epoch && !receiver.is_leaving()) arrive(*receiver.training);
              });
}

void FakeNetwork::Peer::advanced() {
  ++advances;
  if (const auto model = training->model()) mixed.assign(model->begin(), model->end());
}

void FakeNetwork::Peer::compute(std::function<void()> work, std::function<void()> done) {
  compute_for(mixing.value_or(phase), work, std::move(done));
}

void FakeNetwork::Peer::train(std::uint64_t, std::function<void()> work,
                              std::function<void()> done) {
  compute_for(phase, work, std::move(done));
}

// The work is done at once; nothing of it shows before `done`.
void FakeNetwork::Peer::compute_for(Duration mean, const std::function<void()>& work,
                                    std::function<void()> done) {
  work();
  ++computations;
  const auto ended = [this, done = std::move(done), mine = life] {
    if (mine != life || !training) return;
    done();
    if (is_leaving() && !training->is_computing()) network_.adopt(self_);
  };
  const double factor = network_.rng.uniform(0.5, 1.5);
  network_.at(network_.now + from_seconds(factor * to_seconds(mean)), ended);
}

void FakeNetwork::Peer::copy_model(std::vector<Member> donors,
                                   gossip::ModelCopy::Patience longest) {
  ++copies;
  copy_patience = longest.silent;
  constexpr int kTries = 1000;
  answer_copy(donors, life, kTries);
}

// A donor that computes answers afterwards.
void FakeNetwork::Peer::answer_copy(const std::vector<Member>& donors, std::uint64_t mine,
                                    int tries_left) {
  const auto answer = [this, donors, mine, tries_left] {
    if (mine != life || !training) return;
    bool computes = false;
    for (const Member donor : donors) {
      const gossip::TrainingProtocol* const other = network_.peers[donor]->training.get();
      if (other == nullptr || !network_.link(donor, self_).up) continue;
      if (!other->model()) {
        computes = computes || other->is_computing();
        continue;
      }
      const auto model = *other->model();
      const std::vector<float> kept(model.begin(), model.end());
      ++models_taken;
      // Of means, one that rests on as much as ours does may since be of few for an exchange or
      // two.
      const protocol::Support theirs = other->support();
      const bool rests_on_less = theirs.backed == 0 || theirs.backed < training->support().backed;
      if (theirs.minority && rests_on_less) ++minorities_taken;
      return training->copied({other->support().backed, other->progress().exchange}, kept);
    }
    if (computes && tries_left > 0) return answer_copy(donors, mine, tries_left - 1);
    training->not_copied();
  };
  network_.at(network_.now + std::chrono::milliseconds(5), answer);
}

void FakeNetwork::start(Member member, std::uint32_t incarnation,
                        std::optional<gossip::ProtocolStart> start) {
  Peer& peer = *peers[member];
  ++peer.life;
  if (!start) {
    const auto initial = run.initial.values();
    start = gossip::ProtocolStart{.model = {initial.begin(), initial.end()}};
  }
  start->incarnation = incarnation;
  const std::uint64_t step = run.options.schedule().after(start->exchange);
  peer.local = std::make_unique<gossip::LocalSteps>(run, experiment.parts[member], member, step);
  peer.trained_before = 0;
  make_protocol(member, std::move(*start));
}

void FakeNetwork::make_protocol(Member member, gossip::ProtocolStart start) {
  Peer& peer = *peers[member];
  peer.run = run_now_;
  gossip::ProtocolPlace place{.self = member, .names = {}, .absent = absent};
  for (std::size_t i = 0; i < peers.size(); ++i) place.names.push_back(fmt::format("node-{}", i));
  peer.training = gossip::make_protocol(*peer.run, *peer.local, peer, std::move(place), patience,
                                        std::move(start));
  peer.training->begin();
}

// --- epochs -------------------------------------------------------------------------------------

void FakeNetwork::join_without_starting() {
  const auto newcomer = static_cast<Member>(peers.size());
  peers.push_back(std::make_unique<Peer>(*this, newcomer));
  later_runs_.push_back(std::make_unique<gossip::NetworkRun>(derived(experiment, peers.size())));
  run_now_ = later_runs_.back().get();
  absent.insert(newcomer);
  for (Member member = 0; member < newcomer; ++member) {
    const auto& training = peers[member]->training;
    if (training && !training->is_computing()) adopt(member);
  }
}

// As PeerNode: what was computed goes on; those who are in this epoch already greet each other.
void FakeNetwork::adopt(Member member) {
  Peer& peer = *peers[member];
  gossip::ProtocolStart start{.exchange = peer.training->progress().exchange,
                              .support = peer.training->support(),
                              .incarnation = static_cast<std::uint32_t>(rng.next_u64()) | 1U};
  const auto model = peer.training->model();
  start.model.assign(model->begin(), model->end());
  peer.trained_before = trained(member);
  if (auto former = peer.training->hand_over()) {
    start.exchange = former->exchange;
    start.former = std::make_shared<gossip::Handover>(std::move(*former));
  }
  ++peer.life;
  make_protocol(member, std::move(start));
  for (Member other = 0; other < peers.size(); ++other) {
    if (!link(member, other).up || peers[other]->run != run_now_) continue;
    const auto greet = [this](Member from, Member to) {
      at(now + std::chrono::milliseconds(5), [this, from, to, epoch = run_now_] {
        const bool together = peers[from]->run == epoch && peers[to]->run == epoch;
        if (together && epoch == run_now_) peers[to]->training->take_hello(from, hello_of(from));
      });
    };
    greet(member, other);
    greet(other, member);
  }
}

std::uint64_t FakeNetwork::trained(Member member) const {
  const Peer& peer = *peers[member];
  return peer.trained_before + (peer.training ? peer.training->progress().loss_steps : 0);
}

void FakeNetwork::stop(Member member) {
  for (Member other = 0; other < peers.size(); ++other) cut(member, other);
  ++peers[member]->life;
  peers[member]->training.reset();
}

protocol::PeerHello FakeNetwork::hello_of(Member member) const {
  return protocol::PeerHello{.epoch = 1,
                             .exchange = peers[member]->training->progress().exchange,
                             .begun = true,
                             .support = peers[member]->training->support()};
}

void FakeNetwork::connect(Member a, Member b) {
  if (a == b || link(a, b).up || !peers[a]->training || !peers[b]->training) return;
  for (Link* direction : {&link(a, b), &link(b, a)}) {
    ++direction->generation;
    direction->up = true;
    direction->busy_until = now;
  }
  peers[a]->training->take_hello(b, hello_of(b));
  peers[b]->training->take_hello(a, hello_of(a));
}

void FakeNetwork::connect_all() {
  for (Member a = 0; a < peers.size(); ++a) {
    for (Member b = a + 1; b < peers.size(); ++b) connect(a, b);
  }
}

void FakeNetwork::cut(Member a, Member b) {
  if (!link(a, b).up) return;
  link(a, b).up = link(b, a).up = false;
  if (peers[a]->training) peers[a]->training->link_lost(b);
  if (peers[b]->training) peers[b]->training->link_lost(a);
}

void FakeNetwork::pull(const std::set<Member>& members, Duration away) {
  pulled_ = members;
  plugged_in_ = now + away;
  const auto tell = [this](Member self, Member other, Duration delay, bool reachable) {
    at(now + delay, [this, self, other, reachable] {
      if (peers[self]->training) peers[self]->training->reach(other, reachable);
    });
  };
  for (Member a = 0; a < peers.size(); ++a) {
    for (Member b = 0; b < peers.size(); ++b) {
      if (members.contains(a) == members.contains(b)) continue;
      const Duration lost = from_seconds(rng.uniform(4, 14));
      if (lost < away) tell(a, b, lost, false);
      tell(a, b, away + from_seconds(rng.uniform(0, 3)), true);
    }
  }
  at(plugged_in_, [this] { pulled_.clear(); });
}

void FakeNetwork::at(TimePoint time, std::function<void()> event) {
  events_.emplace(std::max(time, now), std::move(event));
}

bool FakeNetwork::advance() {
  Peer* due = nullptr;
  std::optional<TimePoint> deadline;
  for (const auto& peer : peers) {
    const auto next = peer->training ? peer->training->next_deadline() : std::nullopt;
    if (!next || (deadline && *deadline <= *next)) continue;
    deadline = next;
    due = peer.get();
  }
  if (deadline && (events_.empty() || *deadline <= events_.begin()->first)) {
    now = std::max(now, *deadline);
    due->training->tick();
    return true;
  }
  if (events_.empty()) return false;
  const auto event = events_.extract(events_.begin());
  now = event.key();
  event.mapped()();
  return true;
}

void FakeNetwork::run_until(const std::function<bool()>& done, std::uint64_t events_max) {
  for (std::uint64_t i = 0; i < events_max; ++i) {
    if (done() || !advance()) return;
  }
  FAIL() << "after " << events_max << " events it still goes on";
}

}  // namespace starling::testing
