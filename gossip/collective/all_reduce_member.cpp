// SPDX-License-Identifier: Apache-2.0
// A member's side of an attempt: it registers, reduces with those of the list, and waits for each.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

namespace {

// A list comes within so many times what is learned of its parts.
constexpr int kListWaits = 2;
constexpr unsigned kDoublingsMax = 10;

// Of the piece that is to come after so many: from 1 on.
std::uint16_t piece_number(std::size_t step) {
  constexpr std::size_t kMost = std::numeric_limits<std::uint16_t>::max();
  return static_cast<std::uint16_t>(std::min(1 + step, kMost));
}

}  // namespace

void AllReduceMachine::take_part_in(Attempt attempt) {
  promise(attempt);
  report();
}

// After an attempt that came to nothing.
void AllReduceMachine::try_again_with(Member gatherer) {
  ++current_->failed[owner(current_->promised)];
  take_part_in(std::max(next_attempt(gatherer), current_->bounds.later()));
}

void AllReduceMachine::promise(Attempt attempt) {
  Current& c = *current_;
  if (attempt <= c.promised) return;
  c.blame = blame();
  c.promised = attempt;
  c.promised_at = now_;
  c.run.reset();
  c.fetch.reset();  // what still comes of it must not undo what we now report
  c.sent.clear();
  c.early.clear();
  if (gather_ && gather_->attempt() < attempt) {
    if (gather_->list() == nullptr) charge_late();
    if (owner(attempt) != self_) drop_gather(attempt);
    gather_.reset();
  }
}

void AllReduceMachine::report() {
  const Current& c = *current_;
  wait();
  Registration own = registration();
  const Member to = owner(c.promised);
  if (to == self_) {
    const bool is_first = c.promised <= names_.size() && self_ == gatherer_;
    Gathering& gather = open_gather(c.at, c.promised);
    gather.add(self_, std::move(own), now_);
    const bool is_minority = c.at.backed < c.at.exchange;  // looks for the others each time
    if (gather.asked_at() || gather.list() != nullptr) return;
    if (!is_first || is_minority) return ask_all();
    // A member that we do not hear may be gathering the others.
    if (options_.any_mean && !liveness_.lost(now_).empty()) ask_where_others_are();
    return;
  }
  if (own.held) own.lost.clear();
  send(to, c.at, c.promised, std::move(own));
}

// A link or a question alone is no sign that the gatherer gets on.
void AllReduceMachine::report_again() {
  const TimePoint since = current_->waits_since;
  report();
  current_->waits_since = since;
}

Registration AllReduceMachine::registration() const {
  const Current& c = *current_;
  Registration own{
      .lost = liveness_.lost(now_), .blame = c.blame, .fresh = memory_ != Memory::kWhole};
  if (c.held.attempt != 0) own.held = c.held;
  return own;
}

// For whom we have waited in vain, or for so long that it may be the cause of others' waiting.
std::optional<Blame> AllReduceMachine::blame() const {
  const Current& c = *current_;
  if (c.blame && c.blame->wrong) return c.blame;
  const auto member = waiting_for();
  if (!member || c.promised == 0 || c.held.attempt == c.promised) return c.blame;
  const Duration longest = c.run ? piece_wait() : options_.answer;
  if (now_ < c.waits_since + longest / 2 && !liveness_.is_gone(*member, now_)) return c.blame;
  return Blame{*member, piece_number(c.run ? 1 + c.run->reduction.step() : 0)};
}

// Whether its gatherer lists these in the attempt at hand.
bool AllReduceMachine::is_awaited(Member from, Progress at, Attempt attempt,
                                  const Members& members) const {
  if (!current_ || at != current_->at || !are_members(members)) return false;
  return attempt == current_->promised && attempt > current_->joined && owner(attempt) == from;
}

// Its list has come. Whom we blamed as we registered counts no more.
void AllReduceMachine::begin_attempt(Attempt attempt, bool weak, const Members& members) {
  Current& c = *current_;
  wait();
  c.weak = weak || !is_quorum(members.size());
  c.joined = attempt;
  c.joined_at = now_;
  c.waited.reset();
  c.blame.reset();
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::List& list) {
  if (!is_awaited(from, at, attempt, list.members)) return;
  Current& c = *current_;
  const auto apart = list.apart;
  const bool accuses = apart && *apart < names_.size() && *apart != self_;
  const bool is_wrong = c.blame && c.blame->wrong;  // and not silent
  if (accuses && !is_wrong) liveness_.call_silent(*apart, now_);
  // It was the cause for which all waited, as the gatherer found.
  if (accuses && c.blame && c.blame->member == *apart) charge(self_, *c.blame, c.joined_at);
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
  if (holds(mean.sha256)) return accept({std::move(mean), current_->held.floats});
  if (holder != self_) fetch(std::move(standing));
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::Wait&) {
  if (gather_ && attempt == gather_->attempt() && at == gather_->at()) gather_->is_late(from);
  // The gatherer is there, and others are late. A liar could say so for ever.
  if (current_ && !current_->run && !current_->fetch && waiting_for() == from &&
      now_ < current_->promised_at + list_wait()) {
    wait();
  }
}

void AllReduceMachine::join(Members members) {
  Current& c = *current_;
  const std::size_t count = members.size();
  const auto index = static_cast<std::size_t>(std::ranges::find(members, self_) - members.begin());
  const Shape shape = choose_shape(options_.shape, count, c.input.values.size());
  c.run = Run{std::move(members), Reduction(shape, index, count, c.input, c.distance_max)};
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
  Run& run = *current_->run;
  const auto at = std::ranges::find(run.members, from);
  if (at == run.members.end()) return Reduction::Taken::kNotNow;
  std::vector<Reduction::Outgoing> out;
  const auto index = static_cast<std::size_t>(at - run.members.begin());
  const auto taken = run.reduction.take(index, place, piece, out);
  emit(out);
  return taken;
}

// For the piece of this step, which has come.
void AllReduceMachine::note_wait(Member of, std::size_t step) {
  Current& c = *current_;
  const auto wait = std::chrono::floor<std::chrono::milliseconds>(now_ - c.waits_since).count();
  if (std::cmp_less_equal(wait, c.waited ? c.waited->milliseconds : 0)) return;
  constexpr std::int64_t kWaitMax = std::numeric_limits<std::uint32_t>::max();
  c.waited = Waited{.of = of,
                    .piece = piece_number(step),
                    .milliseconds = static_cast<std::uint32_t>(std::min(wait, kWaitMax))};
}

// At once: there is nothing to wait for. A gatherer that lists its own wrong numbers would do so
// again.
void AllReduceMachine::refuse_numbers(Member from) {
  Current& c = *current_;
  if (records_->is_line_due("wrong: " + names_[from], now_)) {
    say(LogLevel::kWarning,
        fmt::format("{} sent numbers in exchange {} that are too far from this peer's model to be "
                    "of this run: not used, and the exchange begins again",
                    names_[from], c.at.exchange));
  }
  c.blame = Blame{.member = from, .pieces = 1, .wrong = true};
  const Member gatherer = owner(c.promised);
  const bool is_no_use = from == gatherer || ++c.refused[gatherer] > GatherHistory::kListsMax;
  if (from == gatherer) charge(self_, *c.blame, now_);
  const Attempt next = next_attempt(is_no_use ? gatherer_after(gatherer) : gatherer);
  take_part_in(std::max(next, c.bounds.later()));
}

void AllReduceMachine::emit(std::vector<Reduction::Outgoing>& out) {
  Current& c = *current_;
  for (Reduction::Outgoing& piece : out) {
    c.sent.push_back(
        {c.run->members[piece.to], c.at, c.joined, piece.place, std::move(piece.floats)});
    actions_.emplace_back(c.sent.back());
  }
}

void AllReduceMachine::after_progress() {
  Current& c = *current_;
  if (!c.run->reduction.done()) return;
  Mean mean{{.members = std::move(c.run->members)}, c.run->reduction.mean()};
  mean.sha256 = sha256(as_bytes(mean.floats.values));
  c.run.reset();
  accept(std::move(mean));
}

// In the attempt at hand.
void AllReduceMachine::accept(Mean mean) {
  Current& c = *current_;
  mean.attempt = c.joined;
  mean.weak = c.weak;
  c.held = std::move(mean);
  c.held_at = now_;
  if (owner(c.joined) != self_) return send_done();
  note_done(self_, done());
}

reduce::Done AllReduceMachine::done() const {
  return {.sha256 = current_->held.sha256, .waited = current_->waited};
}

void AllReduceMachine::send_done() {
  const Current& c = *current_;
  send(owner(c.joined), c.at, c.joined, done());
}

bool AllReduceMachine::holds(const Sha256Digest& sha256) const {
  const Mean& held = current_->held;
  return held.attempt != 0 && held.sha256 == sha256;
}

// --- waiting -------------------------------------------------------------------------------------

std::optional<Member> AllReduceMachine::waiting_for() const {
  if (!current_) return std::nullopt;
  const Current& c = *current_;
  if (c.fetch) return c.fetch->holder;
  if (c.run) return c.run->members[c.run->reduction.waits_for()];
  if (c.promised == 0 || owner(c.promised) == self_) return std::nullopt;
  return owner(c.promised);
}

// Something came of it: waits from now on.
void AllReduceMachine::wait() {
  Current& c = *current_;
  if (c.run || c.held.attempt == c.promised) {
    c.longest_wait = std::max(c.longest_wait, now_ - c.waits_since);
  }
  c.waits_since = now_;
}

Duration AllReduceMachine::piece_wait() const {
  return std::max(pieces_.duration(), options_.answer);
}

// Attempts that came to nothing leave the next ones more time: what seems stuck may only be slow.
// They are counted here; the numbers of others' attempts say nothing.
Duration AllReduceMachine::stretched(Duration wait) const {
  unsigned failed = 0;
  if (current_) {
    for (const auto& [gatherer, times] : current_->failed) failed = std::max(failed, times);
  }
  const unsigned doublings = std::min(failed > 2 ? failed - 2 : 0, kDoublingsMax);
  return std::min(wait * (1U << doublings), std::max(wait, options_.stragglers.max));
}

// In the first exchange nobody knows yet how long one takes, and links may still be made.
Duration AllReduceMachine::piece_deadline() const {
  const Duration wait = stretched(piece_wait());
  return has_ended_any() ? wait : std::max(wait, options_.stragglers.initial);
}

// The longest that heartbeats put off another attempt.
Duration AllReduceMachine::list_wait() const {
  return kListWaits * stretched(arrivals_.duration() + piece_wait() + options_.answer);
}

std::optional<TimePoint> AllReduceMachine::gives_up_at() const {
  const auto member = waiting_for();
  if (!member) return std::nullopt;
  const Current& c = *current_;
  // In the first exchange links may still be made.
  const bool is_starting =
      !has_ended_any() && (c.run || !liveness_.is_met(*member)) && !liveness_.silent_since(*member);
  // Another was waited for in vain before: the gatherer may be the cause.
  const Duration for_list = c.blame ? options_.answer / 2 : options_.answer;
  const Duration longest = waits_for_list() ? for_list : piece_wait();
  TimePoint until = c.waits_since + stretched(longest);
  if (is_starting) until = std::max(until, c.waits_since + options_.stragglers.initial);
  return liveness_.waits_until(*member, c.waits_since, until);
}

bool AllReduceMachine::waits_for_list() const {
  const Current& c = *current_;
  return !c.run && !c.fetch && c.held.attempt != c.promised;
}

// The others are asked half a wait after it began, and judged after the other half. A gatherer's
// heartbeats do not count: it may wait for silent members itself.
TimePoint AllReduceMachine::probe_deadline() const {
  const Current& c = *current_;
  // An answer may take as long as a piece, since it waits behind pieces on a slow link.
  const Duration half = piece_deadline() / 2;
  if (c.probed_at) return *c.probed_at + half;
  const TimePoint since = waits_for_list() ? c.promised_at : c.waits_since;
  return std::max({since, c.begun_at, c.judged_at}) + half;
}

// So that all silent members are found within one wait, and not one after the other as each becomes
// the gatherer.
void AllReduceMachine::probe_others() {
  Current& c = *current_;
  // Else answers may wait to be read.
  const bool ran = c.probed_at && *c.probed_at > stopped_until_;
  if (ran) return find_silent();
  c.probed_at = now_;
  ask_where_others_are();
}

// Who ends the exchange, or has ended it, answers with the commit.
void AllReduceMachine::ask_where_others_are() {
  for (Member m = 0; m < names_.size(); ++m) {
    if (m != self_) send(m, current_->at, 0, reduce::Ask{});
  }
}

// Members that were never met are left out: they may be starting.
void AllReduceMachine::find_silent() {
  Current& c = *current_;
  const TimePoint asked_at = *std::exchange(c.probed_at, std::nullopt);
  c.judged_at = now_;
  bool found = false;
  for (Member m = 0; m < names_.size(); ++m) {
    if (m == self_ || !liveness_.is_met(m) || liveness_.silent_since(m)) continue;
    if (liveness_.heard_at(m) >= asked_at) continue;
    liveness_.call_silent(m, asked_at);
    found = true;
  }
  if (!found) return;
  const auto member = waiting_for();
  if (member && liveness_.silent_since(*member)) return stop_waiting();
  if (c.promised != 0 && waits_for_list()) report_again();
}

// In vain. Whoever is silent as a gatherer is not one again before it is heard; of a piece the
// gatherer finds out who is the cause.
void AllReduceMachine::stop_waiting() {
  Current& c = *current_;
  const Member silent = *waiting_for();
  const Member gatherer = owner(c.promised);
  const bool of_others = c.run || c.fetch;
  if (of_others) {
    say(LogLevel::kWarning,
        fmt::format("{} sends nothing in exchange {}, attempt {}: the exchange begins again",
                    names_[silent], c.at.exchange, c.joined));
  }
  const bool is_there = silent != gatherer && !liveness_.is_lost(gatherer, now_);
  const Member next = of_others && is_there ? gatherer : gatherer_after(gatherer);
  if (silent == gatherer) liveness_.call_silent(silent, now_);
  if (silent == gatherer && has_started()) {
    charge(self_, gatherer, of_others ? c.waits_since : c.promised_at);
  }
  try_again_with(next);
}

// All that may have been lost with the former link. No deadline is put off: a member that dials
// again and again would put it off for ever.
void AllReduceMachine::resend(Member to) {
  if (current_) {
    const Current& c = *current_;
    if (c.search && c.search->asked() == to) ask_source();
    if (c.fetch) {
      if (c.fetch->holder == to) ask_holder();
    } else if (c.promised != 0 && owner(c.promised) == to && !c.run) {
      if (c.held.attempt == c.promised) {
        send_done();
      } else {
        report_again();
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
  if (at == open() && attempt == 0) askers_.insert(from);
  if (current_ && at == current_->at && attempt != 0) {
    if (!is_plausible(from, attempt)) return;
    if (attempt < current_->promised) {
      return send(from, at, current_->promised, reduce::Ask{});
    }
    if (attempt == current_->promised) {  // no sign that the gatherer gets on
      if (current_->joined < attempt) report_again();
      return;
    }
    if (!history_.is_barred(owner(attempt)) &&
        current_->bounds.follows(from, attempt, current_->promised)) {
      return take_part_in(attempt);
    }
  } else if (is_plausible(from, attempt) && (at == next_ || may_follow(at))) {
    const std::pair asked_for(at, attempt);
    asked_for_ = std::max(asked_for_.value_or(asked_for), asked_for);
  }
  send(from, at, attempt, reduce::Wait{});
  if (at > open()) hear_of_later(from, at);
}

}  // namespace starling::collective
