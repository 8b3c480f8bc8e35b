// SPDX-License-Identifier: Apache-2.0
// The gatherer's side of the machine: it hears who is there, names those who reduce, and commits.
// It need not have begun the exchange itself.
#include <fmt/format.h>

#include <algorithm>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

namespace {

// A member that another waited for in vain is given this part of the longest silence to answer.
constexpr int kGraceParts = 10;
// Who still does not register when it was asked so often, though it is heard, is waited for no
// more.
constexpr unsigned kAsksMax = 3;
// Who takes so many times as long from one exchange to the next as more than half of the members is
// not waited for.
constexpr int kSlownessMax = 4;
constexpr int kHeartbeats = 4;  // within the longest silence of a gatherer
constexpr int kRunWaits = 4;    // a run whose members say nothing ends after so many waits

}  // namespace

// --- registrations -------------------------------------------------------------------------------

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt,
                               reduce::Register& registration) {
  records_->came(names_[self_], names_[from], now_);
  if (answer_if_over(from, at, attempt, reduce::Wait{})) return;
  const bool is_for_us = is_plausible(from, attempt) && owner(attempt) == self_;
  if (at > open()) {  // we are late: another is to gather
    if (is_for_us) send(from, at, attempt_after(attempt, gatherer_after(self_)), reduce::Ask{});
    return hear_of_later(from, at);
  }
  if (!is_for_us) return;
  if (barred_.at != at) bar(at);
  auto& [held, lost, blame, fresh] = registration;
  if (!lost.empty() && !are_members(lost)) return;
  if (held && (!are_members(held->members) || held->attempt > attempt)) return;  // cannot be
  if (is_excluded(at, from)) return send(from, at, 0, reduce::Wait{});
  if (current_ && attempt < current_->promised) {
    return send(from, at, current_->promised, reduce::Ask{});
  }
  if (was_listed(at, attempt) && (!gather_ || gather_->attempt != attempt)) {
    return send(from, at, next_attempt(self_), reduce::Ask{});
  }
  if (current_ && attempt > current_->promised) {
    if (!current_->bounds.follows(from, attempt, current_->promised)) return;
    take_part_in(attempt);
  }
  Gather& gather = open_gather(at, attempt);
  if (gather.attempt > attempt) return send(from, at, gather.attempt, reduce::Ask{});
  if (gather.list) {
    if (std::ranges::binary_search(gather.list->to, from)) {
      const bool forgot = fresh && !gather.registered.of(from).fresh;
      return forgot ? begin_again(self_) : send(from, at, attempt, make_list(from));
    }
    if (!gather.registered.contains(from)) {
      arrivals_.learn(std::min(now_ - gather.first_at, lateness_max()));
    }
  }
  if (held && !is_quorum(held->members.size())) held->weak = true;
  if (blame && (blame->member == from || blame->member >= names_.size())) blame.reset();
  add(from, std::move(registration));
}

void AllReduceMachine::add(Member member, Registration registration) {
  const bool is_late = gather_->most_at && !gather_->list && !gather_->registered.contains(member);
  if (is_late) gather_->last = {member, now_};
  gather_->registered.add(member, std::move(registration));
  const bool are_most = 2 * gather_->registered.size() > names_.size();
  if (are_most && !gather_->most_at) gather_->most_at = now_;
}

// In place of the attempt that is gathered here, whatever came of it.
void AllReduceMachine::begin_again(Member gatherer) {
  const Attempt next = attempt_after(gather_->attempt, gatherer);
  if (current_) {
    take_part_in(next);
  } else {
    drop_gather(next);
  }
}

AllReduceMachine::Gather& AllReduceMachine::open_gather(Progress at, Attempt attempt) {
  if (gather_ && gather_->at == at && gather_->attempt >= attempt) return *gather_;
  if (gather_) drop_gather(attempt);
  gather_ = Gather{.at = at,
                   .attempt = attempt,
                   .first_at = now_,
                   .registered = Registrations(majority_, self_, memory_ == Memory::kNone),
                   .heartbeat_at = now_ + options_.answer / kHeartbeats};
  return *gather_;
}

void AllReduceMachine::drop_gather(Attempt instead) {
  for (const auto& [member, registration] : gather_->registered.all()) {
    if (member != self_) send(member, gather_->at, instead, reduce::Ask{});
  }
  gather_.reset();
}

void AllReduceMachine::ask_all() {
  gather_->asked_at = now_;
  gather_->late.clear();
  bar(gather_->at);
  const bool is_enough = ++gather_->asked > kAsksMax;
  for (Member m = 0; m < names_.size(); ++m) {
    if (m == self_ || gather_->registered.contains(m)) continue;
    if (is_enough || is_excluded(gather_->at, m)) gather_->late.insert(m);
    send(m, gather_->at, gather_->attempt, reduce::Ask{});
  }
}

// Since `from`, where the others had begun at `others`.
Duration AllReduceMachine::lateness_max(TimePoint others, TimePoint from) const {
  if (!ended_at_) return options_.stragglers.max;
  return std::max(options_.stragglers.min,
                  *ended_at_ + kSlownessMax * (others - *ended_at_) - from);
}

Duration AllReduceMachine::lateness_max() const {
  const Gather& g = *gather_;
  return g.most_at ? lateness_max(*g.most_at, g.first_at) : options_.stragglers.max;
}

TimePoint AllReduceMachine::closes_at() const {
  const Gather& g = *gather_;
  if (!g.asked_at) return g.first_at + std::min(arrivals_.duration(), lateness_max());
  if (options_.any_mean) return *g.asked_at + options_.answer / kGraceParts;
  return *g.asked_at + stretched(options_.answer);
}

void AllReduceMachine::consider() {
  if (!gather_ || gather_->list || gather_->registered.size() == 0) return;
  if (is_complete() || now_ >= closes_at()) close();
}

// All are there who can be expected.
bool AllReduceMachine::is_complete() const {
  const Registrations& registered = gather_->registered;
  const NamedMean* const standing = registered.standing();
  if (standing != nullptr && registered.backs(registered.holders(standing->sha256))) return true;
  const auto& asked_at = gather_->asked_at;
  const auto cause = asked_at && now_ >= *asked_at + options_.answer / kGraceParts
                         ? registered.find_cause(last_listed())
                         : std::nullopt;
  const auto is_lost_to_others = [&](Member member) {
    return cause && (cause->second.member == member || registered.is_lost_to_any(member));
  };
  for (const Member m : expected_) {
    const bool is_here = registered.contains(m) || is_excluded(gather_->at, m);
    if (!is_here && !liveness_.is_lost(m, now_) && !is_lost_to_others(m)) return false;
  }
  return registered.are_quorum() || (!awaits_mean() && may_be_minority(Late::kAwaited));
}

// Nobody here can hear any of the others, also when asked again; or these have not begun.
bool AllReduceMachine::may_be_minority(Late late) const {
  const Members here = gather_->registered.members();
  for (Member m = 0; m < names_.size(); ++m) {
    if (gather_->registered.contains(m)) continue;
    if (late == Late::kLeftOut && gather_->late.contains(m) && !is_barred(m)) continue;
    const auto silent = liveness_.silent_since(m);
    const bool is_silent = silent && now_ >= *silent + options_.answer;
    if (m == self_ || (!is_silent && !liveness_.is_gone(m, now_))) return false;
    const auto may_hear = [&](Member by) { return gather_->registered.may_hear(by, m); };
    if (std::ranges::any_of(here, may_hear)) return false;
  }
  return true;
}

void AllReduceMachine::close() {
  if (gather_->registered.size() == 0) return;
  // Who is behind hears of it, and who answers is there.
  const bool asks_first = options_.any_mean && !gather_->asked_at && !is_complete();
  if (asks_first) return ask_all();
  if (gather_->registered.are_quorum() || (!awaits_mean() && may_be_minority(Late::kLeftOut))) {
    decide();
  } else {
    close_without_quorum();
  }
}

// Half of the members or fewer go on only where none of them hears any of the others: somebody else
// might gather more.
void AllReduceMachine::close_without_quorum() {
  const Gather& gather = *gather_;
  Members elsewhere;
  for (Member m = 0; m < names_.size(); ++m) {
    if (m == self_ || gather.registered.contains(m)) continue;
    if (gather.asked_at && liveness_.heard_at(m) < *gather.asked_at) liveness_.call_silent(m, now_);
    if (!gather.late.contains(m)) elsewhere.push_back(m);
  }
  const bool all_lost =
      std::ranges::all_of(elsewhere, [this](Member m) { return liveness_.is_lost(m, now_); });
  if (!all_lost || !gather.asked_at || !current_ || awaits_mean()) return ask_all();
  for (const Member by : gather.registered.members()) {
    const bool hears_more =
        std::ranges::any_of(elsewhere, [&](Member m) { return gather.registered.may_hear(by, m); });
    if (!hears_more || current_->passed_on == kAsksMax) continue;
    ++current_->passed_on;
    return begin_again(by);
  }
  ask_all();
}

// --- the run -------------------------------------------------------------------------------------

// Who was started again may have sent another list of this number: one who was not is to gather,
// if there are enough of them.
bool AllReduceMachine::hand_to_another() {
  const Registrations& registered = gather_->registered;
  if (memory_ != Memory::kNone || registered.backs(registered.members())) return false;
  const Members others = registered.not_fresh();
  if (others.empty() || !is_quorum(others.size())) return false;
  begin_again(others.front());
  return true;
}

// A mean that may count as backed may have been committed by somebody who is gone: it stands, and
// is committed when those who hold it back it, or all who are here. Those who could not have made
// it give it no new attempt: that would let it stand before one that was chosen meanwhile.
void AllReduceMachine::decide() {
  if (hand_to_another()) return;
  const Gather& gather = *gather_;
  const Registrations& registered = gather.registered;
  if (!gather.asked_at && is_complete()) arrivals_.learn(now_ - gather.first_at);
  charge_waits();
  if (const NamedMean* const standing = registered.standing()) {
    const Members held_by = registered.holders(standing->sha256);
    if (exclude_silent_holders(held_by)) return close();
    count_list();
    if (!standing->weak && !registered.backs(registered.members())) {
      return end_with({.at = gather.at,
                       .attempt = standing->attempt,
                       .members = standing->members,
                       .sha256 = standing->sha256,
                       .support = support_of(held_by.size(), true),
                       .holder = held_by.front()});
    }
    say(LogLevel::kInfo,
        fmt::format("exchange {}: the mean of attempt {} over {} members stands",
                    gather.at.exchange, standing->attempt, standing->members.size()));
    return send_lists({.to = registered.backs(held_by) ? held_by : registered.members(),
                       .mean = *standing,
                       .holders = held_by});
  }
  SentList list{.to = registered.members()};
  const auto cause = registered.find_cause(last_listed());
  if (cause && registered.contains(cause->second.member)) {
    list.apart = {cause->first, cause->second.member};
    const auto& [by, of] = *list.apart;
    if (records_->is_line_due("apart: " + names_[by] + ", " + names_[of], now_)) {
      say(LogLevel::kWarning,
          fmt::format(
              "exchange {}: {} {} {}, and they are kept apart", gather.at.exchange, names_[by],
              cause->second.wrong ? "got wrong numbers of" : "waited in vain for", names_[of]));
    }
  }
  // Who accuses others each time may be the cause itself.
  if (list.apart && lists_of(gather.at) >= kListsMax) {
    std::erase_if(list.to, [&](Member m) {
      return m != self_ && (m == list.apart->first || m == list.apart->second);
    });
    if (list.to.empty()) list.to = registered.members();
  } else if (list.apart) {
    std::erase(list.to, cause_of(cause->first, cause->second));
  }
  list.to = registered.reducible(std::move(list.to), liveness_.lost(now_), list.apart);
  list.mean.members = list.to;
  count_list();
  listed_.members = list.to;
  send_lists(std::move(list));
}

void AllReduceMachine::count_list() {
  if (lists_of(gather_->at) == 0) listed_ = Lists{.at = gather_->at};
  listed_.attempt = gather_->attempt;
  ++listed_.count;
}

const Members& AllReduceMachine::last_listed() const {
  static const Members kNobody;
  return lists_of(gather_->at) > 0 ? listed_.members : kNobody;
}

unsigned AllReduceMachine::lists_of(Progress at) const {
  return listed_.at == at ? listed_.count : 0;
}

bool AllReduceMachine::was_listed(Progress at, Attempt attempt) const {
  return std::pair(listed_.at, listed_.attempt) >= std::pair(at, attempt);
}

void AllReduceMachine::send_lists(SentList list) {
  Gather& gather = *gather_;
  list.weak = !gather.registered.backs(list.to);
  list.progress_at = now_;
  list.awaited = {list.to.begin(), list.to.end()};
  gather.list = std::move(list);
  for (const auto& [member, registration] : gather.registered.all()) {
    if (member != self_) send(member, gather.at, gather.attempt, make_list(member));
  }
  if (!gather.registered.contains(self_)) return;
  hear(self_, gather.at, gather.attempt, make_list(self_));
}

reduce::What AllReduceMachine::make_list(Member to) const {
  const SentList& sent = *gather_->list;
  if (sent.mean.attempt == 0) {
    reduce::List list{.members = sent.mean.members, .weak = sent.weak};
    if (sent.apart && sent.apart->first == to) list.apart = sent.apart->second;
    return list;
  }
  const Registration& its = gather_->registered.of(to);
  const auto holder = std::ranges::find_if(sent.holders, [&](Member m) {
    return !std::ranges::binary_search(its.lost, m) && !(its.blame && its.blame->member == m);
  });
  reduce::Standing standing{
      .mean = sent.mean, .holder = holder == sent.holders.end() ? sent.holders.front() : *holder};
  standing.mean.weak = sent.weak;
  return standing;
}

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::Done& done) {
  if (!gather_ || at != gather_->at || attempt != gather_->attempt) return;
  note_done(from, done);
}

void AllReduceMachine::note_done(Member member, const reduce::Done& done) {
  const Sha256Digest& sha256 = done.sha256;
  if (!gather_ || !gather_->list || gather_->list->awaited.erase(member) == 0) return;
  SentList& list = *gather_->list;
  // The last one, when the others have had the mean for longer than it takes from one to the next.
  const Duration usual = 2 * pieces_.usual() + piece_wait() / 4;
  const bool is_late = list.awaited.empty() && !list.done.empty() && member != self_ &&
                       now_ > list.progress_at + usual;
  if (is_late) charge(self_, member, list.progress_at);
  list.done[sha256].push_back(member);
  if (done.waited && done.waited->of < names_.size()) list.waits.emplace_back(member, *done.waited);
  list.progress_at = now_;  // our own end too: the root of a tree has the mean first
  const bool is_other = list.mean.attempt != 0 && sha256 != list.mean.sha256;
  if (!is_other && !list.awaited.empty()) return;
  if (is_other || list.done.size() > 1) return settle_difference();
  const auto there =
      std::ranges::find_if(list.to, [this](Member m) { return !liveness_.is_lost(m, now_); });
  end_with({gather_->at, gather_->attempt, list.mean.members, sha256,
            support_of(list.to.size(), list.weak),
            there == list.to.end() ? list.to.front() : *there});
}

// --- time ----------------------------------------------------------------------------------------

// Whoever waits for the list, or came too late for it, hears that we are there.
void AllReduceMachine::tick_gather() {
  if (!gather_) return;
  Gather& gather = *gather_;
  if (now_ >= gather.heartbeat_at) {
    gather.heartbeat_at = now_ + options_.answer / kHeartbeats;
    for (const auto& [member, registration] : gather.registered.all()) {
      const bool waits = !gather.list || !std::ranges::binary_search(gather.list->to, member);
      if (member != self_ && waits) send(member, gather.at, 0, reduce::Wait{});
    }
    for (Member m = 0; m < names_.size(); ++m) {
      if (is_excluded(gather.at, m)) send(m, gather.at, 0, reduce::Wait{});
    }
  }
  if (!gather.list || now_ < run_ends_at()) return;
  const SentList& list = *gather.list;
  if (list.awaited.size() < list.to.size()) listed_.overdue = list.awaited;
  if (list.mean.attempt != 0 && lists_of(gather.at) >= kListsMax) {
    for (const Member m : list.holders) {  // there is nothing that they have to wait for
      if (list.awaited.contains(m)) exclude(m, "holds a mean, as it says, but does not go on");
    }
  }
  for (const Member m : list.awaited) {
    const bool is_late = now_ >= list.progress_at + piece_wait() / 2;
    if (is_late && liveness_.heard_at(m) <= list.progress_at) liveness_.call_silent(m, now_);
  }
  if (!current_) return gather_.reset();
  try_again_with(self_);
}

// Once a member is done, the others are soon: sooner than it gives up. Of a lost one nothing comes.
TimePoint AllReduceMachine::run_ends_at() const {
  const SentList& list = *gather_->list;
  const bool any_done = list.awaited.size() < list.to.size();
  Duration wait = stretched(piece_wait());
  if (!has_ended_any()) wait = std::max(wait, options_.stragglers.initial);  // links may come yet
  TimePoint end = list.progress_at + (any_done ? 3 * wait / 4 : kRunWaits * wait);
  for (const Member m : list.awaited) end = liveness_.waits_until(m, list.progress_at, end);
  return end;
}

std::optional<TimePoint> AllReduceMachine::gather_deadline() const {
  if (!gather_) return std::nullopt;
  const Gather& gather = *gather_;
  TimePoint due = gather.heartbeat_at;
  if (gather.list) return std::min(due, run_ends_at());
  due = std::min(due, closes_at());
  if (gather.asked_at) {
    const TimePoint grace = *gather.asked_at + options_.answer / kGraceParts;
    if (grace > now_) due = std::min(due, grace);
  }
  for (const Member m : expected_) {
    if (gather.registered.contains(m) || liveness_.is_gone(m, now_)) continue;
    due = liveness_.waits_until(m, TimePoint{}, due);
  }
  for (Member m = 0; m < names_.size(); ++m) {  // may_be_minority()
    const auto silent = liveness_.silent_since(m);
    if (silent && *silent + options_.answer > now_) due = std::min(due, *silent + options_.answer);
  }
  return due;
}

}  // namespace starling::collective
