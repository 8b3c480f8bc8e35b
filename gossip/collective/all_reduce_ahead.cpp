// SPDX-License-Identifier: Apache-2.0
// Others are further: whether they can be believed, and the exchange that is given up for a model
// of theirs.
#include <algorithm>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

void AllReduceMachine::receive(Member from, Progress at, Attempt, reduce::Ahead& ahead) {
  if (!are_members(ahead.donors)) return;
  hear_of_further(from, at, std::move(ahead.donors));
  // It keeps the mean no more that it was asked for.
  const bool was_asked = current_ && current_->search && current_->search->asked() == from;
  if (was_asked && at > current_->at) give_up_donor();
}

void AllReduceMachine::hear_of_further(Member from, Progress next, Members donors) {
  if (next <= open()) return;
  claims_.hear(from, next, std::move(donors), true);
  look_ahead();
}

// It has begun a later one. Where that follows ours, it has the mean.
void AllReduceMachine::hear_of_later(Member from, Progress at) {
  if (!may_follow(at)) return hear_of_further(from, at, {from});
  if (current_) send(from, current_->at, 0, reduce::AskProgress{});
}

// It comes right after ours, whatever the mean of ours will be of.
bool AllReduceMachine::may_follow(Progress at) const {
  const Progress ours = open();
  return at.exchange == ours.exchange + 1 && (at.backed == at.exchange || at.backed == ours.backed);
}

void AllReduceMachine::look_ahead() {
  if (!current_) return;
  auto further = claims_.follow(current_->at, liveness_.heard_others(), now_);
  if (further) return catch_up(std::move(*further));
  for (const Member m : claims_.to_ask(now_)) send(m, current_->at, 0, reduce::AskProgress{});
}

void AllReduceMachine::catch_up(AheadClaims::Further further) {
  if (!std::exchange(is_left_out_, true)) {
    say(LogLevel::kWarning, claims_.left_behind(further, current_->at.exchange, names_));
  }
  give_up();
  next_ = further.next;
  donors_ = std::move(further.donors);
  expected_ = {donors_.begin(), donors_.end()};
  // Those that hear us, as far as is known.
  Members first;
  std::ranges::copy_if(donors_, std::back_inserter(first),
                       [this](Member m) { return may_gather(m); });
  if (first.empty()) first = donors_;
  // Last those that may not hear us: each would be waited for.
  std::ranges::stable_partition(
      first, [this](Member m) { return !liveness_.owes_answer(m) && records_->gives(names_[m]); });
  // That of our last mean the others likely have still.
  if (std::ranges::find(first, gatherer_) == first.end()) gatherer_ = first.front();
  actions_.emplace_back(CatchUp{next_, std::move(first)});
}

void AllReduceMachine::give_up() {
  // The network runs already: the long wait for members at its start is over.
  if (!last_) arrivals_.learn(Duration::zero());
  gather_.reset();
  committed_.reset();
  told_.clear();
  askers_.clear();
  Participation& c = *current_;
  note_unheard();
  c.input = {};
  c.leave_attempt();
  c.search.reset();
  c.failed.clear();
  given_up_ = {std::move(c), gatherer_, std::move(expected_)};
  current_.reset();
}

void AllReduceMachine::set_aside(TimePoint now) {
  begin_event(now);
  const auto asked_at = current_->probed_at;
  const Duration grace = options_.answer / Gathering::kGraceParts;
  const bool may_judge = asked_at && now_ >= std::max(*asked_at, stopped_until_) + grace;
  for (Member m = 0; may_judge && m < names_.size(); ++m) {
    const bool has_answered = liveness_.heard_at(m) >= *asked_at;
    // A lost link, or word that it is elsewhere, already explains why it does not answer.
    if (liveness_.is_met(m) && !liveness_.lost_at(m) && !has_answered) {
      liveness_.call_silent(m, *asked_at);
    }
  }
  // Members that are always late, or gather late, would never be charged if such exchanges did not
  // count.
  if (gather_ && gather_->list() == nullptr) {
    charge_late();
  } else if (current_->waits_for_list() && !current_->search && current_->gatherer() != self_) {
    charge(self_, {current_->gatherer()}, current_->promised_at);
  }
  give_up();
  due_ = next_deadline();
}

void AllReduceMachine::forget_mean() {
  if (given_up_) given_up_->current.held = {};
}

// The others have ended this exchange while we waited. The member that we waited for may not hear
// us, so another one is asked next time.
void AllReduceMachine::note_unheard() {
  const Participation& c = *current_;
  if (c.search) {
    if (has_been_long(c.search->asked_at())) records_->gave_nothing(names_[c.search->asked()]);
  } else if (has_been_long(c.promised_at)) {
    note_no_list();
  }
}

// While this process ran: others have gone on meanwhile.
bool AllReduceMachine::has_been_long(TimePoint since) const {
  return now_ >= std::max(since, stopped_until_) + options_.answer / 3;
}

// In a group another one gathers each time anyway.
void AllReduceMachine::note_no_list() {
  const Participation& c = *current_;
  if (options_.any_mean || c.joined >= c.promised || c.gatherer() == self_) return;
  records_->listed_nothing(names_[c.gatherer()]);
}

// The exchange that was given up to copy a model, where no donor gave one.
bool AllReduceMachine::resume(Begin& begin) {
  auto given_up = std::exchange(given_up_, std::nullopt);
  if (!given_up || given_up->current.at != begin.at) return false;
  current_ = std::move(given_up->current);
  current_->input = std::move(begin.input);
  current_->distance_max = begin.distance_max;
  current_->waits_since = now_;
  gatherer_ = given_up->gatherer;
  expected_ = std::move(given_up->expected);
  donors_.clear();
  return true;
}

// It is where it was told that others are: at the end of the run, no Begin may follow.
void AllReduceMachine::handle(Copied&) {
  claims_.copied(now_);
  given_up_.reset();
}

}  // namespace starling::collective
