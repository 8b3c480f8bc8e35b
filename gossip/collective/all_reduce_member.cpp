// SPDX-License-Identifier: Apache-2.0
// A member's side of an attempt: it registers, reduces with those of the list, and waits for each.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

namespace {

// Heartbeats put off another attempt for so many times what is learned of the parts of a list.
constexpr int kListWaits = 2;

}  // namespace

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

// Whether its gatherer lists these in the attempt at hand.
bool AllReduceMachine::is_awaited(Member from, Progress at, Attempt attempt,
                                  const Members& members) const {
  if (!current_ || at != current_->at || !are_members(members)) return false;
  return attempt == current_->promised && attempt > current_->joined && owner(attempt) == from;
}

// Its list has come. Whom we blamed as we registered counts no more.
void AllReduceMachine::begin_attempt(Attempt attempt, bool weak, const Members& members) {
  Participation& c = *current_;
  c.wait(now_);
  c.weak = weak || !is_quorum(members.size());
  records_->listed(names_[owner(attempt)]);
  c.joined = attempt;
  c.joined_at = c.charged_until = now_;
  c.waited.reset();
  c.blame.reset();
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::List& list) {
  if (!is_awaited(from, at, attempt, list.members)) return;
  Participation& c = *current_;
  // It was the cause for which all waited, as the gatherer found.
  if (c.blame && list.apart == c.blame->member) {
    if (!c.blame->wrong) liveness_.call_silent(c.blame->member, now_);
    charge(self_, *c.blame, c.charged_until);
  }
  // How late the last one was, as far as a member sees it that may be the next gatherer.
  if (from != self_ && c.joined == 0) {
    const Duration most = Gathering::lateness_max(view(), c.begun_at, c.begun_at);
    arrivals_.learn(std::min(now_ - c.begun_at, most));
  }
  begin_attempt(attempt, list.weak, list.members);
  if (std::ranges::binary_search(list.members, self_)) join(std::move(list.members));
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt,
                               reduce::Standing& standing) {
  auto& [mean, holder] = standing;
  if (!is_awaited(from, at, attempt, mean.members) || holder >= names_.size()) return;
  // Others have got all that they waited for.
  const auto& blame = current_->blame;
  if (blame && !blame->wrong) liveness_.call_silent(blame->member, now_);
  begin_attempt(attempt, mean.weak, mean.members);
  if (current_->holds(mean.sha256)) return accept({std::move(mean), current_->held.floats});
  if (holder != self_) fetch(std::move(standing));
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::Wait&) {
  if (gather_ && attempt == gather_->attempt() && at == gather_->at()) gather_->call_late(from);
  // The gatherer is there, and others are late. A liar could say so for ever.
  if (!current_ || current_->run || current_->fetch || current_->waiting_for() != from) return;
  const Duration parts = arrivals_.duration() + piece_wait() + options_.answer;
  const Duration most = kListWaits * patience().stretched(parts);
  if (now_ < current_->promised_at + most) current_->wait(now_);
}

void AllReduceMachine::join(Members members) {
  Participation& c = *current_;
  const std::size_t count = members.size();
  const auto index = static_cast<std::size_t>(std::ranges::find(members, self_) - members.begin());
  const Shape shape = choose_shape(options_.shape, count, c.input.values.size());
  c.run = Participation::Run{std::move(members),
                             Reduction(shape, index, count, c.input, c.distance_max)};
  std::vector<Reduction::Outgoing> out;
  c.run->reduction.start(out);
  emit(out);
  for (const auto& [key, piece] : c.early.take()) {
    const auto& [from, place] = key;
    if (reduce(from, place, piece) == Reduction::Taken::kWrong) return refuse_numbers(from);
  }
  after_progress();
}

Reduction::Taken AllReduceMachine::reduce(Member from, std::uint64_t place, const Floats& piece) {
  Participation::Run& run = *current_->run;
  const auto at = std::ranges::find(run.members, from);
  if (at == run.members.end()) return Reduction::Taken::kNotNow;
  std::vector<Reduction::Outgoing> out;
  const auto index = static_cast<std::size_t>(at - run.members.begin());
  const auto taken = run.reduction.take(index, place, piece, out);
  emit(out);
  return taken;
}

// At once: there is nothing to wait for. A gatherer that lists its own wrong numbers would do so
// again.
void AllReduceMachine::refuse_numbers(Member from) {
  Participation& c = *current_;
  say_seldom(
      LogLevel::kWarning, "wrong: " + names_[from],
      fmt::format("{} sent numbers in exchange {} that are too far from this peer's model to be "
                  "of this run: not used, and the exchange begins again",
                  names_[from], c.at.exchange));
  c.blame = Blame{.member = from, .pieces = 1, .wrong = true};
  const Member gatherer = c.gatherer();
  const bool is_no_use = from == gatherer || ++c.refused[gatherer] > GatherHistory::kListsMax;
  if (from == gatherer) charge(self_, *c.blame, now_);
  const Attempt next = next_attempt(is_no_use ? gatherer_after(gatherer) : gatherer);
  take_part_in(std::max(next, c.bounds.later()));
}

void AllReduceMachine::emit(std::vector<Reduction::Outgoing>& out) {
  Participation& c = *current_;
  for (Reduction::Outgoing& piece : out) {
    c.sent.push_back(
        {c.run->members[piece.to], c.at, c.joined, piece.place, std::move(piece.floats)});
    actions_.emplace_back(c.sent.back());
  }
}

void AllReduceMachine::after_progress() {
  Participation& c = *current_;
  if (!c.run->reduction.done()) return;
  Participation::Mean mean{{.members = std::move(c.run->members)}, c.run->reduction.mean()};
  mean.sha256 = sha256(as_bytes(mean.floats.values));
  c.run.reset();
  accept(std::move(mean));
}

// In the attempt at hand.
void AllReduceMachine::accept(Participation::Mean mean) {
  Participation& c = *current_;
  mean.attempt = c.joined;
  mean.weak = c.weak;
  c.held = std::move(mean);
  c.held_at = now_;
  if (owner(c.joined) != self_) return send_done();
  note_done(self_, c.done());
}

void AllReduceMachine::send_done() {
  const Participation& c = *current_;
  send(owner(c.joined), c.at, c.joined, c.done());
}

// --- waiting -------------------------------------------------------------------------------------

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
  say_seldom(LogLevel::kWarning, "end: " + gatherer,
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
      charge(self_, gatherer, of_others ? c.waits_since : c.promised_at);
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
