// SPDX-License-Identifier: Apache-2.0
// How long a member waits for another, who counts as silent after that, and what is sent again over
// a new link.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

namespace {

// Heartbeats put off another attempt for so many times what is learned of the parts of a list.
constexpr int kListWaits = 2;

}  // namespace

Duration AllReduceMachine::piece_wait() const {
  return std::max(pieces_.duration(), options_.answer);
}

Patience AllReduceMachine::patience() const {
  return {.answer = options_.answer,
          .piece = piece_wait(),
          // Nobody knows yet how long the first exchange takes.
          .start = is_running_ ? Duration::zero() : options_.stragglers.initial,
          .max = options_.stragglers.max,
          .failed = current_ ? current_->failed_max() : 0};
}

// So that all silent members are found within one wait, and not one after the other as each becomes
// the gatherer.
void AllReduceMachine::probe_others() {
  Participation& c = *current_;
  // Else answers may wait to be read.
  const bool ran = c.probed_at && *c.probed_at >= stopped_until_;
  if (ran) return find_silent();
  c.probed_at = now_;
  ask_where_others_are();
}

// Who ends the exchange, or has ended it, answers with the commit.
void AllReduceMachine::ask_where_others_are() {
  send_to_others(current_->at, 0, reduce::AskProgress{});
}

// Members that were asked where they are in an earlier exchange and did not answer, such as late
// ones that this gatherer no longer waits for. Another gatherer may hear them and list them with
// us.
void AllReduceMachine::find_unanswering() {
  for (Member m = 0; m < names_.size(); ++m) {
    const auto asked_at = liveness_.unanswered_since(m);
    if (!asked_at || !liveness_.is_met(m)) continue;
    const bool had_time = now_ >= std::max(*asked_at, stopped_until_) + piece_wait() / 2;
    if (had_time && now_ >= liveness_.heard_at(m) + piece_wait()) {
      liveness_.call_silent(m, *asked_at);
    }
  }
}

// Members that were never met are left out: they may be starting.
void AllReduceMachine::find_silent() {
  Participation& c = *current_;
  const TimePoint asked_at = *std::exchange(c.probed_at, std::nullopt);
  c.judged_at = now_;
  bool found = false;
  for (Member m = 0; m < names_.size(); ++m) {
    if (m == self_ || !liveness_.is_met(m) || liveness_.silent_since(m)) continue;
    if (liveness_.heard_at(m) >= asked_at || liveness_.is_passed_over(m, now_)) continue;
    liveness_.call_silent(m, asked_at);
    found = true;
  }
  if (!found) return;
  const auto member = c.waiting_for();
  if (member && liveness_.silent_since(*member)) return stop_waiting();
  if (c.promised != 0 && c.waits_for_list()) report();
}

// Of an attempt that is left, if this member was done.
void AllReduceMachine::say_end_is_missing() {
  const Participation& c = *current_;
  if (c.promised == 0 || c.held.attempt != c.promised) return;
  const std::string& gatherer = names_[c.gatherer()];
  say_seldom("end: " + gatherer,
             fmt::format("{} gathers exchange {} and does not say that it has ended, although "
                         "this peer is done: another member takes over",
                         gatherer, c.at.exchange));
}

// In vain. Whoever is silent as a gatherer is not one again before it is heard; of a piece the
// gatherer finds out who is the cause.
void AllReduceMachine::stop_waiting() {
  Participation& c = *current_;
  const Member silent = *c.waiting_for();
  const Member gatherer = c.gatherer();
  const bool of_others = c.run || c.fetch;
  if (of_others) {
    say(LogLevel::kWarning,
        fmt::format("{} sends nothing in exchange {}, attempt {}: the exchange begins again",
                    names_[silent], c.at.exchange, c.joined));
  } else {
    say_end_is_missing();
  }
  const bool is_there = silent != gatherer && !liveness_.is_lost(gatherer, now_);
  const Member next = of_others && is_there ? gatherer : gatherer_after(gatherer);
  if (silent == gatherer && !liveness_.is_passed_over(gatherer, now_)) {
    liveness_.call_silent(silent, now_);
    note_no_list();
    if (charges_waits()) {
      charge(self_, {gatherer}, of_others ? c.waits_since : c.promised_at);
      c.charged_until = now_;
    }
  }
  try_again_with(next);
}

// All that may have been lost with the former link. No deadline is put off: a member that dials
// again and again would put it off for ever.
void AllReduceMachine::resend(Member to) {
  if (current_) {
    const Participation& c = *current_;
    if (c.search && c.search->asked() == to) ask_source();
    if (c.fetch) {
      if (c.fetch->holder == to) ask_holder();
    } else if (c.promised != 0 && c.gatherer() == to && !c.run) {
      if (c.held.attempt == c.promised) {
        send_done();
      } else {
        report();
      }
    }
    for (const SendPiece& piece : c.sent) {
      if (piece.to == to) actions_.emplace_back(piece);
    }
  }
  const bool is_here = gather_ && gather_->registered().contains(to);
  // It registers again: it may have been started again meanwhile.
  if (is_here && gather_->list() != nullptr) return;
  if (gather_ && gather_->asked_at() && !is_here) {
    send(to, gather_->at(), gather_->attempt(), reduce::Ask{});
  } else if (last_ && owner(last_->commit.attempt) == self_) {
    send_commit(to, last_->commit);
  }
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::Wait&) {
  if (gather_ && attempt == gather_->attempt() && at == gather_->at()) gather_->call_late(from);
  // The gatherer is there, and others are late. A liar could say so for ever.
  if (!current_ || current_->run || current_->fetch || current_->waiting_for() != from) return;
  const Duration parts = arrivals_.duration() + piece_wait() + options_.answer;
  const Duration most = kListWaits * patience().stretched(parts);
  if (now_ < current_->promised_at + most) current_->wait(now_);
}

}  // namespace starling::collective
