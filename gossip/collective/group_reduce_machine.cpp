// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/group_reduce_machine.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::collective {
namespace {

// Each member keeps records of its own, and any of them may gather next: their budgets add up.
constexpr Duration kBudget = std::chrono::seconds(10);
constexpr std::size_t kObserversMax = 16;  // that count: nobody is barred for hours

}  // namespace

GroupReduceMachine::GroupReduceMachine(const Options& options, Epoch epoch, const GroupDraw& draw,
                                       Member self, std::vector<std::string> names, Progress next,
                                       const std::set<Member>& absent,
                                       const protocol::Support& before, TimePoint now)
    : options_(options),
      epoch_(epoch),
      draw_(draw),
      self_(self),
      names_(std::move(names)),
      at_(next),
      is_starting_(options.start.has_value()),
      starts_until_(now + options.start.value_or(Duration{})),
      peers_(names_.size()),
      quorum_(names_.size(), now, before),
      records_(std::make_shared<MemberRecords>(MemberRecords::Options{
          .budget = kBudget,
          .forgiven = gossip::WaitBudget::kForgiven *
                      static_cast<int>(std::min(names_.size(), kObserversMax)),
          // One other is waited for at least: who bars all runs on alone.
          .over_max = std::max<std::size_t>(names_.size(), 3) - 2})),
      claims_(names_.size(), self, next.exchange, options.exchange.answer),
      now_(now) {
  STARLING_CHECK(self < names_.size() && names_.size() == draw.members);
  for (const Member member : absent) {
    peers_.at(member).missed = kMissedMax;
    quorum_.reach(member, false, now);
  }
}

std::vector<Action> GroupReduceMachine::on(Event event, TimePoint now) {
  now_ = now;
  // This process did not run: answers may wait to be read.
  if (due_ && now_ > *due_ + AllReduceMachine::kStopped) forget_questions();
  std::visit([this](auto& e) { handle(e); }, event);
  ask_next_groups();
  due_ = next_asked_at_ ? next_deadline() : std::nullopt;
  return std::exchange(actions_, {});
}

std::optional<TimePoint> GroupReduceMachine::next_deadline() const {
  std::optional<TimePoint> due;
  if (held_) due = held_until_;
  const auto sooner = [&](std::optional<TimePoint> time) {
    if (time) due = std::min(due.value_or(*time), *time);
  };
  if (busy_) sooner(claims_.looks_at());
  sooner(judges_next_at());
  for (const auto& [exchange, group] : groups_) sooner(group.machine.next_deadline());
  return due;
}

Duration GroupReduceMachine::piece_wait() const {
  const Group* const group = ended_last_ ? find(*ended_last_) : find(at_.exchange);
  return group != nullptr ? group->machine.piece_wait() : options_.exchange.pieces.initial;
}

bool GroupReduceMachine::takes_part(Member member, Progress at) const {
  const Group* const group = find(at.exchange);
  return group != nullptr && group->place_of(member);
}

std::size_t GroupReduceMachine::members() const {
  const Group* const group = find(at_.exchange);
  return group != nullptr ? group->members.size() : draw_.group_of(self_, at_.exchange).size();
}

// --- events --------------------------------------------------------------------------------------

void GroupReduceMachine::handle(Begin& begin) {
  held_ = std::move(begin);
  if (is_starting_ && !has_met_all()) {
    held_until_ = now_ + *options_.start;
    return;
  }
  begin_now();
}

void GroupReduceMachine::handle(Copied&) {
  copied_ = true;
  claims_.copied(now_);
}

void GroupReduceMachine::handle(LinkUp& up) {
  if (up.member >= peers_.size() || up.member == self_) return;
  if (up.is_new) {
    Peer& peer = peers_[up.member];
    peer.met = true;
    peer.is_asked = false;  // the question may be lost with the former link
    peer.down_since.reset();
    if (std::exchange(peer.came_near, false)) peer.missed = 0;
    reach(up.member, true);
  }
  if (up.at && up.at->backed <= up.at->exchange) {
    hear_that_it_runs(up.member, up.at->exchange);
    if (is_outranked_by(*up.at)) outranked_by_ = {up.member, *up.at};
  }
  for (auto& [exchange, group] : groups_) {
    const auto place = group.place_of(up.member);
    if (place && up.is_new && !peers_[up.member].is_missing()) {
      perform(exchange, group.machine.on(LinkUp{*place, std::nullopt}, now_));
    }
  }
  // However far it has come: two that copied each other's model would both wait.
  if (up.at && !gives_way(*up.at) && up.at->exchange > at_.exchange + kKept) {
    hear_of_further(up.member, *up.at);
  }
  if (held_ && (!is_starting_ || has_met_all())) begin_now();
  if (outranked_by_ && busy_) copy_model_of_quorum();
}

void GroupReduceMachine::handle(LinkDown& down) {
  if (down.member >= peers_.size() || down.member == self_) return;
  Peer& peer = peers_[down.member];
  if (!peer.down_since) peer.down_since = now_;
  peer.is_asked = false;
  if (!is_down(peer)) return;
  reach(down.member, false);
  claims_.forget(down.member);
  for (auto& [exchange, group] : groups_) {
    const auto place = group.place_of(down.member);
    if (place) perform(exchange, group.machine.on(LinkDown{*place}, now_));
  }
}

void GroupReduceMachine::handle(NoteReceived& came) {
  Note& note = came.note;
  if (came.from >= peers_.size() || came.from == self_ || note.epoch != epoch_) return;
  if (note.at.backed > note.at.exchange) return;
  const Exchange exchange = note.at.exchange;
  // It names the exchange of the question, wherever its sender is.
  const bool is_answer = is_one_of<reduce::Wait, reduce::NotYet>(note.what);
  const bool asks =
      is_one_of<reduce::Register, reduce::Ask, reduce::AskProgress, reduce::Want>(note.what);
  Peer& peer = peers_[came.from];
  const bool is_near = exchange + AllReduceMachine::kNear >= at_.exchange;
  const bool was_asked = (is_near || is_answer) && std::exchange(peer.is_asked, false);
  if (is_answer && find(exchange) == nullptr) return;
  if (!is_answer && is_near) {
    peer.missed = 0;
    peer.came_near = true;
  }
  if (!is_answer && one_gives_way(came.from, note.at, asks)) return;
  hear_that_it_runs(came.from, exchange);
  if (held_ && !is_starting_) begin_now();
  if (std::holds_alternative<reduce::Ahead>(note.what)) {
    // Else who waits for a liar would leave it for those that do not, and not charge it.
    if (was_asked) return;
    return hear_of_further(came.from, note.at);
  }
  if (exchange > at_.exchange + ahead_max() && find(exchange) == nullptr) {
    // It waits for us a while, since we are here, and so does not run away.
    if (asks) {
      if (!std::holds_alternative<reduce::AskProgress>(note.what)) put_off_[came.from] = exchange;
      send(came.from, exchange, note.attempt, reduce::Wait{});
    }
    return hear_of_further(came.from, note.at);
  }
  const bool is_past = exchange < at_.exchange;
  const bool is_forgotten = is_past && find(exchange) == nullptr;
  const Group* const opened = find(exchange);
  const auto is_mate = [&] {
    return std::ranges::binary_search(opened ? opened->members : own_group(exchange), came.from);
  };
  if (is_forgotten || !is_mate()) {
    if (asks && is_past) {
      tell_where_we_are(came.from);
    } else if (std::holds_alternative<reduce::AskProgress>(note.what)) {
      send(came.from, exchange, note.attempt, reduce::Wait{});
    }
    return;
  }
  const auto place = open(exchange).place_of(came.from);
  note.at = of_machine(exchange);
  give(exchange, NoteReceived{*place, std::move(note)});
}

void GroupReduceMachine::handle(PieceReceived& came) {
  const Exchange exchange = came.at.exchange;
  const Group* const group = find(exchange);
  const auto place = group != nullptr ? group->place_of(came.from) : std::nullopt;
  if (!place || came.epoch != epoch_) return;
  peers_[came.from].is_asked = false;
  came.from = *place;
  came.at = of_machine(exchange);
  give(exchange, std::move(came));
}

void GroupReduceMachine::handle(Tick&) {
  judge_next_groups();
  if (held_ && now_ >= held_until_) begin_now();
  if (busy_ && claims_.looks_at() && now_ >= *claims_.looks_at()) look_ahead();
  for (auto& [exchange, group] : groups_) {
    const auto due = group.machine.next_deadline();
    if (due && *due <= now_) perform(exchange, group.machine.on(Tick{}, now_));
  }
}

// --- exchanges -----------------------------------------------------------------------------------

std::optional<Member> GroupReduceMachine::Group::place_of(Member member) const {
  const auto at = std::ranges::lower_bound(members, member);
  if (at == members.end() || *at != member) return std::nullopt;
  return static_cast<Member>(at - members.begin());
}

const Members& GroupReduceMachine::own_group(Exchange exchange) {
  const auto [drawn, is_new] = drawn_.try_emplace(exchange);
  if (is_new) drawn->second = draw_.group_of(self_, exchange);
  return drawn->second;
}

GroupReduceMachine::Group& GroupReduceMachine::open(Exchange exchange) {
  if (const auto found = groups_.find(exchange); found != groups_.end()) return found->second;
  Members members = own_group(exchange);
  std::vector<std::string> names;
  std::set<Member> absent;
  Member own = 0;
  for (Member place = 0; place < members.size(); ++place) {
    const Peer& peer = peers_[members[place]];
    names.push_back(names_[members[place]]);
    if (members[place] == self_) own = place;
    // A broken link is replaced soon, as at the start, where two may have been made.
    const bool is_gone = is_down(peer) && now_ >= *peer.down_since + MemberLiveness::kRelink;
    if (peer.is_missing() || is_gone) absent.insert(place);
  }
  AllReduceOptions options = options_.exchange;
  options.any_mean = true;
  AllReduceMachine machine(options, epoch_, own, std::move(names), of_machine(exchange), absent);
  machine.share(records_);
  if (const Group* const former = ended_last_ ? find(*ended_last_) : nullptr) {
    machine.learn_from(former->machine);
  }
  Group& group =
      groups_.emplace(exchange, Group{std::move(members), std::move(machine)}).first->second;
  for (Member place = 0; place < group.members.size(); ++place) {
    const Peer& peer = peers_[group.members[place]];
    if (absent.contains(place)) continue;
    if (peer.met) perform(exchange, group.machine.on(LinkUp{place, std::nullopt}, now_));
    if (is_down(peer)) perform(exchange, group.machine.on(LinkDown{place}, now_));
  }
  return group;
}

const GroupReduceMachine::Group* GroupReduceMachine::find(Exchange exchange) const {
  const auto found = groups_.find(exchange);
  return found == groups_.end() ? nullptr : &found->second;
}

void GroupReduceMachine::give(Exchange exchange, Event event) {
  perform(exchange, groups_.at(exchange).machine.on(std::move(event), now_));
}

void GroupReduceMachine::pass_over(Exchange exchange, Member place, TimePoint from) {
  perform(exchange, groups_.at(exchange).machine.pass_over(place, from, now_));
}

void GroupReduceMachine::perform(Exchange exchange, std::vector<Action> actions) {
  const Group& group = groups_.at(exchange);
  for (Action& action : actions) {
    if (auto* note = std::get_if<SendNote>(&action)) {
      note->to = group.members[note->to];
      note->note.at.backed = backed_in_note(note->note.at.exchange);
    } else if (auto* piece = std::get_if<SendPiece>(&action)) {
      piece->to = group.members[piece->to];
    } else if (auto* finished = std::get_if<Finished>(&action)) {
      perform(group, std::move(*finished));
      continue;
    }
    actions_.push_back(std::move(action));
  }
}

void GroupReduceMachine::perform(const Group& group, Finished finished) {
  const Exchange exchange = finished.at.exchange;
  for (Member& member : finished.members) member = group.members[member];
  // Who came too late itself knows nothing of the others.
  const bool was_there = std::ranges::binary_search(finished.members, self_);
  for (const Member member : group.members) {
    Peer& peer = peers_[member];
    if (std::ranges::binary_search(finished.members, member)) {
      peer.not_followed = 0;
      continue;
    }
    if (was_there && !peer.is_missing() && ++peer.missed == kMissedMax) peer.came_near = false;
    if (claims_.has(member)) ++peer.not_followed;
  }
  remember_silent(group);
  if (2 * finished.members.size() > group.members.size()) claims_.pace().ended(exchange, now_);
  is_left_out_ = !was_there;
  finished.at = at_;
  note_whether_alone(finished.members.size() > (was_there ? 1 : 0));
  const bool is_apart = quorum_.is_minority(now_) || is_alone_;
  finished.next = {is_apart ? at_.backed : exchange + 1, exchange + 1};
  at_ = finished.next;
  ended_last_ = exchange;
  busy_ = false;
  actions_.emplace_back(std::move(finished));
}

// Who waits for none of those that it hears runs away from them, and they cannot know whether one
// member that is further tells the truth. What they hold, if they are in step with each other, is
// the model of most: to that one it gives way, and waits for them again until it hears of it.
void GroupReduceMachine::note_whether_alone(bool is_with_others) {
  if (is_with_others) is_alone_ = false;
  if (peers_.size() <= 2) return;
  for (Member member = 0; member < peers_.size(); ++member) {
    if (member != self_ && !peers_[member].is_missing()) return;
  }
  is_alone_ = true;
  for (Peer& peer : peers_) {
    if (peer.met && !peer.down_since) peer.missed = 0;
  }
}

// Who did not answer this member, whatever others heard of it.
void GroupReduceMachine::remember_silent(const Group& group) {
  for (Member place = 0; place < group.members.size(); ++place) {
    if (group.machine.is_silent(place)) call_silent(peers_[group.members[place]]);
  }
}

void GroupReduceMachine::reach(Member member, bool reachable) {
  if (!quorum_.reach(member, reachable, now_)) return;
  actions_.emplace_back(Say{quorum_.held() ? LogLevel::kInfo : LogLevel::kWarning, quorum_.tell()});
}

void GroupReduceMachine::tell_where_we_are(Member to) {
  send(to, at_.exchange, 0, reduce::Ahead{});
}

void GroupReduceMachine::send(Member to, Exchange exchange, Attempt attempt, reduce::What what) {
  actions_.emplace_back(SendNote{to,
                                 {.epoch = epoch_,
                                  .at = {.backed = backed_in_note(exchange), .exchange = exchange},
                                  .attempt = attempt,
                                  .what = std::move(what)}});
}

Exchange GroupReduceMachine::backed_in_note(Exchange exchange) const {
  return is_minority() && exchange > 0 ? std::min(at_.backed, exchange - 1) : exchange;
}

}  // namespace starling::collective
