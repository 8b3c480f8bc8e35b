// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/world_invariants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "gossip/algorithms/lossy_sgp.h"
#include "gossip/algorithms/push_sum.h"
#include "gossip/peer/asynchronous_protocol.h"
#include "gossip/peer/held_roster.h"
#include "gossip/peer/neighbour_protocol.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::testing {

using gossip::EpochSession;
using gossip::Exchange;
using gossip::MassLedger;
using gossip::Member;
using gossip::PeerTransport;

namespace {

// Two that are linked hold the same roster so soon.
constexpr Duration kRosterSpread = std::chrono::seconds(10);
// From here on, after faults have ended, a model that is asked for comes.
constexpr Duration kModelsCome = std::chrono::seconds(10);
constexpr std::uint64_t kOne = std::uint64_t{1} << 40;  // weight, in a ledger

bool says(std::string_view line, std::string_view part) {
  return line.find(part) != std::string_view::npos;
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Where the session's algorithm counts mass; else null.
const MassLedger* ledger_of(const gossip::TrainingProtocol& training) {
  if (const auto* pairs = dynamic_cast<const gossip::AsynchronousProtocol*>(&training)) {
    const auto* push_sum = dynamic_cast<const gossip::PushSum<float>*>(&pairs->algorithm());
    return push_sum != nullptr && push_sum->ledger() ? &*push_sum->ledger() : nullptr;
  }
  const auto* steps = dynamic_cast<const gossip::NeighbourProtocol*>(&training);
  if (steps == nullptr) return nullptr;
  const auto* sgp = dynamic_cast<const gossip::LossySgp<float>*>(&steps->algorithm());
  return sgp != nullptr ? &sgp->ledger() : nullptr;
}

}  // namespace

// Nothing is sent to who is no member, or of another epoch than the roster's.
class WorldInvariants::WatchedLinks final : public PeerTransport {
 public:
  WatchedLinks(WorldInvariants& watch, std::size_t index) : watch_(watch), index_(index) {}

  // Requires: before it is used.
  void watch(Handlers handlers, const std::function<std::unique_ptr<PeerTransport>(Handlers)>& to) {
    const auto on_up = std::move(handlers.on_up);
    const auto on_down = std::move(handlers.on_down);
    const auto on_message = std::move(handlers.on_message);
    const auto on_transfer = std::move(handlers.on_transfer);
    const auto check = std::move(handlers.check);
    handlers.on_message = [this, on_message](Member member, const protocol::Envelope& envelope) {
      hears(member);
      on_message(member, envelope);
    };
    handlers.on_transfer = [this, on_transfer](Member member, gossip::TransferFlow::Whole whole) {
      hears(member);
      if (!std::holds_alternative<protocol::ModelColumns>(whole.transfer.content)) {
        return on_transfer(member, std::move(whole));
      }
      const protocol::Support theirs = whole.transfer.support;
      const auto before = takes_columns(theirs);
      on_transfer(member, std::move(whole));
      has_taken_columns(member, theirs, before);
    };
    handlers.check = [this, check](Member member, const protocol::VectorTransfer& transfer) {
      watch_.turn(index_);
      return check(member, transfer);
    };
    handlers.on_up = [this, on_up](Member member, const protocol::PeerHello& hello) {
      hears(member);
      process().unasked.insert(name(member));
      on_up(member, hello);
    };
    handlers.on_down = [this, on_down](Member member, const Error& why) {
      watch_.turn(index_);
      process().unasked.erase(name(member));
      process().untold.erase(name(member));
      on_down(member, why);
    };
    if (handlers.hello) {
      handlers.hello = [this, hello = std::move(handlers.hello)] { return said(hello()); };
    }
    links_ = to(std::move(handlers));
    process().links = links_.get();
  }

  void set_roster(std::shared_ptr<const identity::SignedRoster> roster) override {
    roster_ = roster;
    links_->set_roster(std::move(roster));
    process().untold.clear();
    for (const auto& [member, hello] : links_->all_up()) process().untold.insert(name(member));
  }
  void set_messages_max(std::size_t messages_max) override {
    links_->set_messages_max(messages_max);
  }
  void keep(std::set<Member> members) override {
    for (const Member member : members) check(member, "wants a link with", epoch());
    links_->keep(std::move(members));
  }
  void end_idle_links(bool ends) override { links_->end_idle_links(ends); }
  void reach(Member member) override {
    check(member, "dials", epoch());
    links_->reach(member);
  }
  bool is_up(Member member) const override { return links_->is_up(member); }
  std::vector<std::pair<Member, protocol::PeerHello>> all_up() const override {
    return links_->all_up();
  }
  void send(Member to, const protocol::Message& message, SharedBytes payload) override {
    check(to, "sends a message to", epoch_of(message));
    if (std::holds_alternative<protocol::PeerHello>(message)) process().untold.erase(name(to));
    if (std::holds_alternative<protocol::RosterAsk>(message)) process().unasked.erase(name(to));
    const auto* const note = std::get_if<protocol::ReduceNote>(&message);
    if (note != nullptr && watch_.world_.on_reduce_note) {
      protocol::ReduceNote sent = *note;
      if (watch_.world_.on_reduce_note(index_, sent)) links_->send(to, sent, std::move(payload));
      return;
    }
    if (const auto* const hello = std::get_if<protocol::PeerHello>(&message)) {
      return links_->send(to, said(*hello), std::move(payload));
    }
    links_->send(to, message, std::move(payload));
  }
  void send_transfer(Member to, const protocol::VectorTransfer& transfer, SharedBytes data,
                     gossip::TransferFlow::Urgency urgency) override {
    check(to, "sends vectors to", transfer.epoch);
    protocol::VectorTransfer sent = transfer;
    if (watch_.world_.on_transfer && links_->is_up(to)) {
      const auto& peers = watch_.world_.peers;
      const auto receiver = std::ranges::find(peers, name(to), &PeerWorld::Peer::name);
      watch_.world_.on_transfer(index_, static_cast<std::size_t>(receiver - peers.begin()), sent,
                                data);
    }
    links_->send_transfer(to, sent, std::move(data), urgency);
  }
  Counters counters() const override { return links_->counters(); }

 private:
  protocol::PeerHello said(protocol::PeerHello hello) const {
    if (watch_.world_.on_greeting) watch_.world_.on_greeting(index_, hello);
    return hello;
  }
  Process& process() const { return *watch_.peers_[index_].process; }
  protocol::Epoch epoch() const { return roster_ ? roster_->roster().epoch : 0; }
  bool is_member(Member member) const {
    return roster_ && member < roster_->roster().members.size();
  }
  std::string name(Member member) const {
    return is_member(member) ? roster_->roster().members[member].name
                             : fmt::format("member {}", member);
  }
  // Of what belongs to an epoch; of the rest that of the roster.
  protocol::Epoch epoch_of(const protocol::Message& message) const {
    if (const auto* swim = std::get_if<protocol::Swim>(&message)) return swim->epoch;
    if (const auto* ask = std::get_if<protocol::ColumnsAsk>(&message)) return ask->epoch;
    if (const auto* wait = std::get_if<protocol::ColumnsPutOff>(&message)) return wait->epoch;
    if (const auto* note = std::get_if<protocol::ReduceNote>(&message)) return note->epoch;
    if (const auto* mix_ask = std::get_if<protocol::MixAsk>(&message)) return mix_ask->epoch;
    if (const auto* answer = std::get_if<protocol::MixAnswer>(&message)) return answer->epoch;
    return epoch();
  }
  // Of means, one that rests on as much as ours does may since be of few for an exchange or two.
  // Returns what this peer's own rests on.
  std::optional<protocol::Support> takes_columns(const protocol::Support& theirs) const {
    PeerWorld::Peer& peer = *watch_.world_.peers[index_];
    const EpochSession* session = peer.shell().machine().session();
    if (session == nullptr) return std::nullopt;
    ++peer.columns_taken;
    const protocol::Support ours = session->support();
    const bool rests_on_less = theirs.backed == 0 || theirs.backed < ours.backed;
    if (theirs.minority && rests_on_less) ++peer.columns_of_minorities;
    return ours;
  }
  // What rests on a quorum is not given up for what rests on less.
  void has_taken_columns(Member member, const protocol::Support& theirs,
                         const std::optional<protocol::Support>& before) const {
    const EpochSession* session = watch_.world_.peers[index_]->shell().machine().session();
    if (session == nullptr || !before || before->minority) return;
    const protocol::Support ours = session->support();
    if (ours.backed >= before->backed) return;
    watch_.fail(fmt::format(
        "{} rested on exchange {} with a quorum, and rests on exchange {} with the model of {}, "
        "which rests on exchange {}",
        watch_.name(index_), before->backed, ours.backed, name(member), theirs.backed));
  }
  // By what its machine holds, whatever its links do.
  void hears(Member member) const {
    watch_.turn(index_);
    const auto& held = watch_.world_.peers[index_]->shell().machine().roster().whole();
    if (held == roster_ && is_member(member)) return;
    if (held == nullptr || !held->roster().find(name(member))) {
      watch_.fail(fmt::format("{} hears {}, which is no member of its roster", watch_.name(index_),
                              name(member)));
    }
  }
  void check(Member member, std::string_view does, protocol::Epoch of) const {
    const std::string& self = watch_.name(index_);
    if (!is_member(member) || roster_->roster().members[member].name == self) {
      watch_.fail(fmt::format("{} {} {}, which is no other member of its roster", self, does,
                              name(member)));
    } else if (of != epoch()) {
      watch_.fail(fmt::format("{} {} {} of epoch {}, and its roster is of epoch {}", self, does,
                              name(member), of, epoch()));
    }
  }

  WorldInvariants& watch_;
  const std::size_t index_;
  std::shared_ptr<const identity::SignedRoster> roster_;
  std::unique_ptr<PeerTransport> links_;
};

WorldInvariants::WorldInvariants(PeerWorld& world) : world_(world), peers_(world.peers.size()) {}
WorldInvariants::~WorldInvariants() = default;

std::unique_ptr<PeerTransport> WorldInvariants::watch(
    std::size_t index, PeerTransport::Handlers handlers,
    const std::function<std::unique_ptr<PeerTransport>(PeerTransport::Handlers)>& connect) {
  auto links = std::make_unique<WatchedLinks>(*this, index);
  links->watch(std::move(handlers), connect);
  return links;
}

gossip::PeerTransport* WorldInvariants::links(std::size_t index) const {
  return peers_[index].process ? peers_[index].process->links : nullptr;
}

const std::string& WorldInvariants::name(std::size_t index) const {
  return world_.peers[index]->name;
}

// The first says what is wrong; what follows from it is no news.
void WorldInvariants::fail(const std::string& sentence) {
  if (std::exchange(failed_, true)) return;
  ADD_FAILURE() << "seed " << world_.seed << ", at "
                << seconds(world_.scheduler.now() - TimePoint{}) << " s: " << sentence
                << world_.status();
}

// --- processes ----------------------------------------------------------------------------------

void WorldInvariants::starting(std::size_t index) {
  Peer& peer = peers_[index];
  peer.process = std::make_unique<Process>();
  Process& process = *peer.process;
  PeerWorld::Peer& device = *world_.peers[index];
  auto held = gossip::load_checkpoint(device.disk, "gossip/checkpoint.safetensors",
                                      world_.experiment.layout());
  if (held) {
    const auto state = gossip::load_state(device.disk, "gossip/checkpoint.safetensors", *held,
                                          std::string(world_.experiment.plan.traits.name));
    if (!state) fail(name(index) + " has lost its state: " + state.error().message());
    process.held = std::move(*held);
  }
  const auto roster = gossip::load_held_roster(device.disk, "gossip", *device.identity);
  if (roster && *roster) {
    process.held_epoch = (*roster)->roster().epoch;
    process.revoked = (*roster)->roster().revoked;
  }
  if (peer.disk_is_good && process.held_epoch < peer.roster) {
    fail(fmt::format("{} had the roster of epoch {} and keeps that of epoch {}", name(index),
                     peer.roster, process.held_epoch));
  }
}

void WorldInvariants::started(std::size_t index) {
  const auto* roster = world_.peers[index]->shell().machine().roster().get();
  const protocol::Epoch epoch = roster != nullptr ? roster->epoch : 0;
  if (epoch != peers_[index].process->held_epoch) {
    fail(fmt::format("{} begins with the roster of epoch {}, and its disk holds that of epoch {}",
                     name(index), epoch, peers_[index].process->held_epoch));
  }
  turn(index);
}

void WorldInvariants::ending(std::size_t index) { peers_[index].process.reset(); }

void WorldInvariants::closing(std::size_t index) {
  peers_[index].process->closing = true;
  turn(index);
}

void WorldInvariants::closed(std::size_t index) {
  const Peer& peer = peers_[index];
  const Process& process = *peer.process;
  // Where a model is being copied there may be none; see AllReduceProtocol::model(). Nor is there
  // one where what was being computed is not waited for any more.
  if (!peer.disk_is_good || !process.began || process.copying_since || process.closing_late) return;
  const auto held = gossip::load_checkpoint(
      world_.peers[index]->disk, "gossip/checkpoint.safetensors", world_.experiment.layout());
  if (!held || held->run != process.run || held->exchange < process.exchange) {
    fail(fmt::format("{} was closed at exchange {} and keeps {}", name(index), process.exchange,
                     held ? fmt::format("exchange {}", held->exchange) : "nothing"));
  }
}

void WorldInvariants::disk_disturbed(std::size_t index) { peers_[index].disk_is_good = false; }

void WorldInvariants::disk_lost(std::size_t index) { peers_[index].roster = 0; }

// Time that it did not see.
void WorldInvariants::thawed(std::size_t index, Duration frozen) {
  Process& process = *peers_[index].process;
  if (process.copying_since) *process.copying_since += frozen;
  process.closing_late |= process.closing;
}

void WorldInvariants::forged(protocol::Epoch epoch) { forged_.insert(epoch); }

void WorldInvariants::calm() { calm_since_ = world_.scheduler.now(); }

void WorldInvariants::checkpoint_written(std::size_t index) {
  peers_[index].process->kept_at = world_.scheduler.now();
}

// --- training -----------------------------------------------------------------------------------

void WorldInvariants::said(std::size_t index, std::string_view line) {
  if (!peers_[index].process) return;
  Process& process = *peers_[index].process;
  const bool copies = says(line, "taking the model of") || says(line, "taking their model") ||
                      says(line, "model in place of what was learned apart");
  if (copies) {
    const auto& shell = world_.peers[index]->process->shell;
    const EpochSession* session = shell ? shell->machine().session() : nullptr;
    if (session != nullptr) process.copied_in = session->epoch();
  }
  process.may_go_elsewhere |= copies || says(line, " instead of ");
  if (says(line, "the run cannot go on") && !world_.may_refuse.contains(index))
    fail(fmt::format("{}: {}", name(index), line));
  if (says(line, "nobody gave a model") && calm_since_ && process.copying_since &&
      *process.copying_since >= *calm_since_ + kModelsCome) {
    fail(
        fmt::format("{} asked for a model and got none, though all could be reached", name(index)));
  }
}

// Each local phase of a run once, one after the other; elsewhere only after saying so.
void WorldInvariants::trains(std::size_t index) {
  Process& process = *peers_[index].process;
  const gossip::PeerMachine& machine = world_.peers[index]->shell().machine();
  const EpochSession* session = machine.session();
  if (session == nullptr || process.closing || session->epoch() != machine.roster()->epoch) {
    return fail(
        fmt::format("{} trains for an epoch that is over, or while it closes", name(index)));
  }
  const Exchange exchange = session->training().progress().exchange;
  const std::string& run = session->run_id();
  const bool trained = process.trained && process.trained_in == run;
  const Exchange kept = process.held && process.held->run == run ? process.held->exchange : 0;
  const Exchange next = trained ? *process.trained + 1 : kept;
  if (exchange != next && !process.may_go_elsewhere) {
    fail(fmt::format("{} trains the local phase of exchange {}, and that of {} is the next one",
                     name(index), exchange, next));
  }
  process.trained = exchange;
  process.trained_in = session->run_id();
  process.may_go_elsewhere = false;
}

// --- after each event ---------------------------------------------------------------------------

void WorldInvariants::turn(std::size_t index) {
  if (std::ranges::find(heard_, index) == heard_.end()) heard_.push_back(index);
}

void WorldInvariants::happened() {
  if (failed_) return;
  for (const std::size_t index : heard_) {
    if (peers_[index].process) look(index);
  }
  heard_.clear();
  if (world_.scheduler.now() < next_look_) return;
  next_look_ = world_.scheduler.now() + std::chrono::seconds(1);
  look_at_rosters();
}

void WorldInvariants::look(std::size_t index) {
  Process& process = *peers_[index].process;
  const gossip::PeerMachine& machine = world_.peers[index]->shell().machine();
  const TimePoint now = world_.scheduler.now();
  if (!process.untold.empty()) {
    return fail(fmt::format("{} has another roster, and has not told {}", name(index),
                            fmt::join(process.untold, ", ")));
  }
  if (!process.unasked.empty()) {
    return fail(fmt::format("{} has a link with {}, and has not asked for a newer roster",
                            name(index), fmt::join(process.unasked, ", ")));
  }
  const protocol::Epoch roster = machine.roster() ? machine.roster()->epoch : 0;
  if (roster < process.roster) {
    return fail(fmt::format("{} went from the roster of epoch {} back to that of epoch {}",
                            name(index), process.roster, roster));
  }
  if (roster > process.roster) {
    const identity::SignedRoster& taken = *machine.roster().whole();
    if (std::ranges::find(process.revoked, taken.signer_key()) != process.revoked.end() &&
        roster > process.held_epoch) {
      return fail(
          fmt::format("{} went to the roster of epoch {}, which {} signed with a revoked key",
                      name(index), roster, taken.signer().name));
    }
    process.revoked = taken.roster().revoked;
  }
  process.roster = roster;
  peers_[index].roster = std::max(peers_[index].roster, roster);
  const EpochSession* session = machine.session();
  if (session == nullptr) {
    process.epoch = 0;  // it may begin again in the same one
    if (!process.closing) process.copying_since.reset();
    return;
  }
  const gossip::TrainingProgress progress = session->training().progress();
  const bool is_new = process.epoch != session->epoch() || process.run != session->run_id();
  if (!process.began) {
    const bool goes_on = process.held && process.held->run == session->run_id();
    const Exchange from = goes_on ? process.held->exchange : 0;
    if (progress.exchange != from) {
      return fail(fmt::format("{} begins at exchange {}, and its checkpoint is of exchange {}",
                              name(index), progress.exchange, from));
    }
  }
  if (is_new) {
    process.run = session->run_id();
    process.epoch = session->epoch();
    process.kept_at = now;
  } else if (progress.exchange == process.exchange + 1 && !process.may_go_elsewhere &&
             !process.copying_since && now - process.kept_at > world_.options.checkpoint_every) {
    return fail(fmt::format("{} has kept no checkpoint for {:.1f} s", name(index),
                            seconds(now - process.kept_at)));
  }
  process.began = true;
  process.exchange = progress.exchange;
  if (progress.state != "catching-up") {
    process.copying_since.reset();
    return;
  }
  process.copied_in = session->epoch();
  if (!process.copying_since) process.copying_since = now;
  // Each donor is waited for once.
  const Duration most = 5 * world_.options.patience_max + kModelsCome;
  if (now - *process.copying_since > most) {
    fail(fmt::format("{} has waited for a model for {:.0f} s", name(index),
                     seconds(now - *process.copying_since)));
  }
}

bool WorldInvariants::are_linked(std::size_t a, std::size_t b) const {
  const auto is_up = [this](std::size_t from, std::size_t to) {
    if (!peers_[from].process || world_.is_frozen(from)) return false;
    gossip::PeerShell& shell = world_.peers[from]->shell();
    const auto* roster = shell.machine().roster().get();
    const auto member = roster != nullptr ? roster->find(name(to)) : std::nullopt;
    return member && shell.transport().is_up(*member) &&
           !world_.network.is_cut(name(from), name(to));
  };
  return is_up(a, b) && is_up(b, a);
}

void WorldInvariants::look_at_rosters() {
  const TimePoint now = world_.scheduler.now();
  for (std::size_t a = 0; a < peers_.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      // Who believes that a roster is over does not take it from others.
      const auto lasts_long = [this](std::size_t index) {
        const identity::Roster& roster = *world_.peers[index]->shell().machine().roster();
        return roster.expires - roster.issued > std::chrono::hours(12);
      };
      const bool run = peers_[a].process && peers_[b].process;
      const bool differ = run && peers_[a].process->roster != peers_[b].process->roster &&
                          !forged_.contains(peers_[a].process->roster) &&
                          !forged_.contains(peers_[b].process->roster) && are_linked(a, b) &&
                          lasts_long(a) && lasts_long(b);
      if (!differ) {
        differ_since_.erase({a, b});
        continue;
      }
      const TimePoint since = differ_since_.emplace(std::pair(a, b), now).first->second;
      if (now - since <= kRosterSpread) continue;
      return fail(
          fmt::format("{} holds the roster of epoch {}, and is linked with {}, which holds "
                      "that of epoch {}, since {:.0f} s",
                      name(a), peers_[a].process->roster, name(b), peers_[b].process->roster,
                      seconds(now - since)));
    }
  }
}

// --- at the end ---------------------------------------------------------------------------------

// The newest that anybody holds.
const identity::Roster* WorldInvariants::newest_roster() const {
  const identity::Roster* newest = nullptr;
  for (const auto& peer : world_.peers) {
    const identity::Roster* held = peer->process ? peer->shell().machine().roster().get() : nullptr;
    if (held != nullptr && (newest == nullptr || held->epoch > newest->epoch)) newest = held;
  }
  return newest;
}

std::vector<std::uint64_t> WorldInvariants::mass() const {
  std::vector<std::uint64_t> sum(world_.experiment.parameters() + 1);
  const auto count = [&sum](std::span<const std::uint64_t> part, bool more) {
    for (std::size_t i = 0; i < part.size(); ++i) sum[i] += more ? part[i] : -part[i];
  };
  const identity::Roster* roster = newest_roster();
  if (roster == nullptr) return {};
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!roster->find(name(i))) continue;
    if (!peers_[i].process) return {};
    const EpochSession* session = world_.peers[i]->shell().machine().session();
    const MassLedger* ledger = session != nullptr ? ledger_of(session->training()) : nullptr;
    if (ledger == nullptr || session->epoch() != roster->epoch) return {};
    // A synchronous node that takes another's model takes its own share of the weight anew.
    const bool is_async =
        dynamic_cast<const gossip::AsynchronousProtocol*>(&session->training()) != nullptr;
    if (!is_async && peers_[i].process->copied_in == session->epoch()) return {};
    count(ledger->mass(), true);
    sum.back() -= ledger->made();
    for (Member other = 0; other < roster->members.size(); ++other) {
      count(ledger->pushed(other), true);
      count(ledger->pulled(other), false);
    }
  }
  return sum;
}

bool WorldInvariants::expect_all_mass() {
  const std::vector<std::uint64_t> all = mass();
  if (all.empty()) return false;
  const std::size_t members = newest_roster()->members.size();
  if (all.back() != kOne * members) {
    fail(fmt::format("the weights of {} members and what is on their edges are {:.6f} together",
                     members, static_cast<double>(all.back()) / static_cast<double>(kOne)));
  }
  return true;
}

}  // namespace starling::testing
