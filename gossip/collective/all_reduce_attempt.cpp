// SPDX-License-Identifier: Apache-2.0
// Which attempt a member takes part in, and so with whom it registers. It chooses the attempt
// itself, or follows a member that asks it to take part in another one.
#include <algorithm>
#include <utility>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

Attempt AllReduceMachine::first_attempt() {
  const Progress at = current_->at;
  const bool is_no_use = gatherer_ != self_ && !may_gather(gatherer_);
  const auto asked = std::exchange(asked_for_, {});
  if (asked && asked->at == at && !history_.is_barred(owner(asked->attempt))) {
    const bool is_gathered =
        history_.was_sent(at, asked->attempt) || (gather_ && gather_->attempt() >= asked->attempt);
    // Our gatherer would wait for us: it knows of another attempt, or we go there after this one.
    const bool may_go = is_no_use || gatherer_ == self_ || asked->by == gatherer_;
    if (!is_gathered && may_go) return asked->attempt;
    if (!is_gathered) current_->bounds.put_off(asked->attempt);
  }
  // Somebody has registered here already, so the others are asked to register here as well.
  if (gather_) return gather_->attempt();
  // Past that of a gatherer that is of no use: the other one may take part in it.
  const Attempt first = next_attempt(gatherer_);
  return is_no_use ? attempt_after(first, gatherer_after(gatherer_)) : first;
}

Attempt AllReduceMachine::attempt_after(Attempt former, Member gatherer) const {
  const auto n = static_cast<Attempt>(names_.size());
  const Attempt first = gatherer + 1;
  return former < first ? first : first + (former - first + n) / n * n;
}

// The first one of this gatherer that leaves behind all that we take part in or gathered.
Attempt AllReduceMachine::next_attempt(Member gatherer) const {
  const Attempt promised = current_ ? current_->promised : 0;
  return attempt_after(std::max(promised, history_.last_attempt(open())), gatherer);
}

// As far as is known here.
bool AllReduceMachine::may_gather(Member member) const {
  return !history_.is_barred(member) && !liveness_.is_lost(member, now_) &&
         records_->lists(names_[member]);
}

// Members of the last mean come first.
Member AllReduceMachine::gatherer_after(Member former) const {
  for (const bool was_there : {true, false}) {
    for (std::size_t i = 1; i <= names_.size(); ++i) {
      const auto m = static_cast<Member>((former + i) % names_.size());
      if (m != former && expected_.contains(m) == was_there && may_gather(m)) return m;
    }
  }
  return self_;
}

bool AllReduceMachine::is_plausible(Member from, Attempt attempt) {
  if (!current_) return AttemptBounds(names_.size()).is_plausible(from, attempt, 0);
  return current_->bounds.is_plausible(from, attempt, current_->promised);
}

void AllReduceMachine::take_part_in(Attempt attempt) {
  promise(attempt);
  current_->wait(now_);
  report();
}

// Because `asker` says so. The gatherer that waits for us hears where we went.
void AllReduceMachine::follow(Member asker, Attempt attempt) {
  const Participation& c = *current_;
  const Member former = c.promised != 0 ? c.gatherer() : gatherer_;
  if (former != self_ && now_ >= c.held_at + options_.answer) say_end_is_missing();
  take_part_in(attempt);
  const bool is_told = former == self_ || former == asker || former == owner(attempt);
  if (!is_told) send(former, c.at, attempt, reduce::Ask{});
}

// Whether the attempt at hand is left at once because `asker` wants another one. Our gatherer waits
// for us, and would charge us. In a group members may have barred different gatherers: they leave
// for any that asks, and so come together.
bool AllReduceMachine::may_leave_for(Member asker, Attempt attempt) const {
  const Participation& c = *current_;
  if (c.promised == 0 || is_awaited_here(asker)) return true;
  if (options_.any_mean && asker == owner(attempt)) return true;
  if (c.gatherer() == self_) return !c.run;
  if (c.gatherer() == asker || liveness_.is_lost(c.gatherer(), now_)) return true;
  const bool is_late = options_.any_mean || now_ >= c.promised_at + options_.answer / 2;
  return c.waits_for_list() && is_late;
}

// It is told how the exchange ends: who gathers it may not be in its reach.
void AllReduceMachine::put_off(Member asker, Attempt attempt) {
  if (current_) current_->bounds.put_off(attempt);
  askers_.insert(asker);
}

// For an attempt that was put off, once our gatherer is lost.
std::optional<TimePoint> AllReduceMachine::leaves_gatherer_at() const {
  if (!current_ || current_->promised == 0 || current_->gatherer() == self_) return std::nullopt;
  if (current_->bounds.later() <= current_->promised) return std::nullopt;
  return liveness_.lost_at(current_->gatherer());
}

// After an attempt that came to nothing.
void AllReduceMachine::try_again_with(Member gatherer) {
  ++current_->failed[current_->gatherer()];
  const Attempt later = current_->bounds.later();  // others may be there
  const bool is_asked = later > current_->promised && may_gather(owner(later));
  take_part_in(is_asked ? later : next_attempt(gatherer));
}

void AllReduceMachine::promise(Attempt attempt) {
  Participation& c = *current_;
  if (attempt <= c.promised) return;
  c.blame = c.blame_at(patience(), liveness_, now_);
  c.promised = attempt;
  c.promised_at = now_;
  c.leave_attempt();
  if (gather_ && gather_->attempt() < attempt) {
    if (gather_->list() == nullptr) charge_late();
    if (owner(attempt) != self_) drop_gather(attempt);
    gather_.reset();
  }
}

// Also once more, over a new link or since others ask: no sign that the gatherer gets on, so that
// the wait goes on.
void AllReduceMachine::report() {
  Participation& c = *current_;
  Registration own = registration();
  const Member to = c.gatherer();
  if (to == self_) {
    const bool is_first = c.promised <= names_.size() && self_ == gatherer_;
    Gathering& gather = open_gather(c.at, c.promised);
    gather.add(self_, std::move(own), now_);
    const bool is_minority = c.at.backed < c.at.exchange;  // looks for the others each time
    if (gather.asked_at() || gather.list() != nullptr) return;
    if (!is_first || is_minority) return ask_all();
    // The time that members have to register stays as it is, since they may train.
    if (std::exchange(c.was_away, false)) return send_to_others(c.at, c.promised, reduce::Ask{});
    // A member that we do not hear may be gathering the others.
    if (options_.any_mean && !liveness_.lost(now_).empty()) ask_where_others_are();
    return;
  }
  if (own.held) own.lost.clear();
  send(to, c.at, c.promised, std::move(own));
}

Registration AllReduceMachine::registration() const {
  const Participation& c = *current_;
  Registration own{
      .lost = liveness_.lost(now_), .blame = c.blame, .fresh = memory_ != Memory::kWhole};
  if (c.held.attempt != 0) own.held = c.held;
  return own;
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::Ask&) {
  if (answer_if_over(from, at, attempt, reduce::Wait{})) return;
  if (current_ && at == current_->at) {
    if (!is_plausible(from, attempt)) return;
    if (attempt < current_->promised) {
      return send(from, at, current_->promised, reduce::Ask{});
    }
    if (attempt == current_->promised) {
      if (current_->joined < attempt) report();
      return;
    }
    const bool has_left = is_awaited_here(from);
    if (!may_leave_for(from, attempt)) {
      put_off(from, attempt);
    } else if (current_->bounds.follows(from, attempt, current_->promised)) {
      const auto led_by = owner(attempt) == from ? std::nullopt : std::optional(owner(attempt));
      if (has_left) charge_leaving(from, led_by);
      if (!history_.is_barred(owner(attempt))) return follow(from, attempt);
      if (has_left) return begin_again(self_);
    }
  } else if (is_plausible(from, attempt) && (at == next_ || may_follow(at))) {
    const AskedFor asked{at, attempt, from};
    asked_for_ = std::max(asked_for_.value_or(asked), asked);
  }
  // It takes part in nothing below that any more.
  const bool is_gone = gather_ && gather_->at() == at && gather_->attempt() < attempt;
  if (is_gone && gather_->list() == nullptr) gather_->remove(from);
  send(from, at, attempt, reduce::Wait{});
  if (at > open()) hear_of_later(from, at);
}

void AllReduceMachine::receive(Member from, Progress at, Attempt, reduce::AskProgress&) {
  if (answer_if_over(from, at, 0, reduce::Wait{})) return;
  if (at == open()) askers_.insert(from);
  send(from, at, 0, reduce::Wait{});
  if (at > open()) hear_of_later(from, at);
}

}  // namespace starling::collective
