// SPDX-License-Identifier: Apache-2.0
// The gatherer's side of the machine: it hears who is there, names those who reduce, and commits.
// It need not have begun the exchange itself.
#include <fmt/format.h>

#include <algorithm>

#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

using Kind = protocol::ReduceNote::Kind;

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

void AllReduceMachine::receive_register(Member from, protocol::ReduceNote& note) {
  const Progress at = progress_of(note);
  if (answer_if_over(from, note)) return;
  const bool is_for_us = is_plausible(from, note.attempt) && owner(note.attempt) == self_;
  if (at > open()) {  // we are late: another is to gather
    const Attempt next = is_for_us ? attempt_after(note.attempt, gatherer_after(self_)) : 0;
    if (is_for_us) send(from, make_note(Kind::kAsk, at, next));
    return hear_of_later(from, at);
  }
  if (!is_for_us) return;
  if (!note.members.empty() && !are_members(note.members)) return;
  const bool is_named = !note.members.empty() && note.sha256;
  if (note.held > note.attempt || (note.held != 0 && !is_named)) return;  // cannot be
  if (is_excluded(at, from)) return send(from, make_note(Kind::kWait, at, 0));
  if (current_ && note.attempt < current_->promised) {
    return send(from, make_note(Kind::kAsk, at, current_->promised));
  }
  if (was_listed(at, note.attempt) && (!gather_ || gather_->attempt != note.attempt)) {
    return send(from, make_note(Kind::kAsk, at, next_attempt(self_)));
  }
  if (current_ && note.attempt > current_->promised) {
    if (!follows(from, note.attempt)) return;
    take_part_in(note.attempt);
  }
  Gather& gather = open_gather(at, note.attempt);
  if (gather.attempt > note.attempt) {
    return send(from, make_note(Kind::kAsk, at, gather.attempt));
  }
  if (gather.running) {
    if (std::ranges::binary_search(gather.list, from)) {
      const bool forgot = note.fresh && !gather.registered.at(from).fresh;
      return forgot ? begin_again() : send_list(from);
    }
    if (!gather.registered.contains(from)) {
      arrivals_.learn(std::min(now_ - gather.first_at, lateness_max()));
    }
  }
  Registration registration;
  if (note.held != 0) {
    const bool weak = note.weak || !is_quorum(note.members.size());
    registration.held = {note.held, std::move(note.members), {}, *note.sha256, weak};
  } else {
    registration.lost = std::move(note.members);
  }
  if (note.count != 0) registration.blame = Blame{note.other, note.count};
  registration.fresh = note.fresh;
  add(from, std::move(registration));
}

void AllReduceMachine::add(Member member, Registration registration) {
  gather_->registered[member] = std::move(registration);
  const bool are_most = 2 * gather_->registered.size() > names_.size();
  if (are_most && !gather_->most_at) gather_->most_at = now_;
}

// Whatever came of the attempt at hand: another, under our own number.
void AllReduceMachine::begin_again() {
  if (current_) {
    take_part_in(next_attempt(self_));
  } else {
    drop_gather(next_attempt(self_));
  }
}

AllReduceMachine::Gather& AllReduceMachine::open_gather(Progress at, Attempt attempt) {
  if (gather_ && gather_->at == at && gather_->attempt >= attempt) return *gather_;
  if (gather_) drop_gather(attempt);
  gather_ = Gather{.at = at,
                   .attempt = attempt,
                   .first_at = now_,
                   .heartbeat_at = now_ + options_.answer / kHeartbeats};
  return *gather_;
}

void AllReduceMachine::drop_gather(Attempt instead) {
  for (const auto& [member, registration] : gather_->registered) {
    if (member != self_) send(member, make_note(Kind::kAsk, gather_->at, instead));
  }
  gather_.reset();
}

void AllReduceMachine::ask_all() {
  gather_->asked_at = now_;
  gather_->late.clear();
  const bool is_enough = ++gather_->asked > kAsksMax;
  for (Member m = 0; m < names_.size(); ++m) {
    if (m == self_ || gather_->registered.contains(m)) continue;
    if (is_enough || is_excluded(gather_->at, m)) gather_->late.insert(m);
    send(m, make_note(Kind::kAsk, gather_->at, gather_->attempt));
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
  if (!gather_ || gather_->running || gather_->registered.empty()) return;
  if (is_complete() || now_ >= closes_at()) close();
}

// All are there who can be expected.
bool AllReduceMachine::is_complete() const {
  const auto& registered = gather_->registered;
  const Mean* const standing = standing_mean();
  if (standing != nullptr && backs(holders(standing->sha256))) return true;
  const auto& asked_at = gather_->asked_at;
  const auto cause =
      asked_at && now_ >= *asked_at + options_.answer / kGraceParts ? find_cause() : std::nullopt;
  const auto is_lost_to_others = [&](Member member) {
    return cause && (cause->second.member == member ||
                     std::ranges::any_of(registered, [&](const auto& entry) {
                       return std::ranges::binary_search(entry.second.lost, member);
                     }));
  };
  for (const Member m : expected_) {
    const bool is_here = registered.contains(m) || is_excluded(gather_->at, m);
    if (!is_here && !liveness_.is_lost(m, now_) && !is_lost_to_others(m)) return false;
  }
  return is_quorum(registered.size()) || (!awaits_mean() && may_be_minority(Late::kAwaited));
}

// Nobody here can hear any of the others, also when asked again; or these have not begun.
bool AllReduceMachine::may_be_minority(Late late) const {
  for (Member m = 0; m < names_.size(); ++m) {
    if (gather_->registered.contains(m)) continue;
    if (late == Late::kLeftOut && gather_->late.contains(m)) continue;
    const auto silent = liveness_.silent_since(m);
    const bool is_silent = silent && now_ >= *silent + options_.answer;
    if (m == self_ || (!is_silent && !liveness_.is_gone(m, now_))) return false;
    for (const auto& [member, registration] : gather_->registered) {
      if (member == self_ || registration.held.attempt != 0) continue;
      if (!std::ranges::binary_search(registration.lost, m)) return false;
    }
  }
  return true;
}

void AllReduceMachine::close() {
  if (gather_->registered.empty()) return;
  // Who is behind hears of it, and who answers is there.
  const bool asks_first = options_.any_mean && !gather_->asked_at && !is_complete();
  if (asks_first) return ask_all();
  if (is_quorum(gather_->registered.size()) ||
      (!awaits_mean() && may_be_minority(Late::kLeftOut))) {
    decide();
  } else {
    close_without_quorum();
  }
}

// Half of the members or fewer go on only where none of them hears any of the others: somebody else
// might gather more.
void AllReduceMachine::close_without_quorum() {
  Gather& gather = *gather_;
  bool all_lost = true;
  for (Member m = 0; m < names_.size(); ++m) {
    if (m == self_ || gather.registered.contains(m)) continue;
    if (gather.asked_at && liveness_.heard_at(m) < *gather.asked_at) liveness_.call_silent(m, now_);
    all_lost = all_lost && (liveness_.is_lost(m, now_) || gather.late.contains(m));
  }
  if (!all_lost || !gather.asked_at || !current_ || awaits_mean()) return ask_all();
  for (const auto& [member, registration] : gather.registered) {
    if (member == self_ || registration.held.attempt != 0) continue;
    const bool hears_more = [&, &lost = registration.lost] {
      for (Member m = 0; m < names_.size(); ++m) {
        const bool elsewhere = !gather.registered.contains(m) && !gather.late.contains(m);
        if (elsewhere && !std::ranges::binary_search(lost, m)) return true;
      }
      return false;
    }();
    if (!hears_more || current_->passed_on == kAsksMax) continue;
    ++current_->passed_on;
    return take_part_in(next_attempt(member));
  }
  ask_all();
}

// --- the run -------------------------------------------------------------------------------------

// Of the means that may count as backed the one of the highest attempt; of the weak ones, where
// there is no other and those who are here back none. Of different means of one attempt none can
// have been committed: our own, or that of most.
const AllReduceMachine::Mean* AllReduceMachine::standing_mean() const {
  const bool is_backed = backs(here());
  const auto rank = [](const Mean& mean) { return std::pair(!mean.weak, mean.attempt); };
  const auto followers = [this](const Mean& mean) {
    const Members held_by = holders(mean.sha256);
    return std::tuple(std::ranges::binary_search(held_by, self_), held_by.size(), mean.sha256);
  };
  const auto is_less = [&](const Mean& a, const Mean& b) {
    if (rank(a) != rank(b) || a.sha256 == b.sha256) return rank(a) < rank(b);
    return followers(a) < followers(b);
  };
  const Mean* standing = nullptr;
  for (const auto& [member, registration] : gather_->registered) {
    const Mean& held = registration.held;
    if (held.attempt == 0 || (is_backed && held.weak)) continue;
    if (standing == nullptr || is_less(*standing, held)) standing = &held;
  }
  return standing;
}

Members AllReduceMachine::holders(const Sha256Digest& sha256) const {
  Members members;
  for (const auto& [member, registration] : gather_->registered) {
    const Mean& held = registration.held;
    if (held.attempt != 0 && held.sha256 == sha256) members.push_back(member);
  }
  return members;
}

Members AllReduceMachine::here() const {
  Members members;
  for (const auto& [member, registration] : gather_->registered) members.push_back(member);
  return members;
}

// A mean that all of these hold counts as backed: more than half of the members are among them and
// remember what they promised, and so does the gatherer; or nobody is left who could hold another.
bool AllReduceMachine::backs(const Members& list) const {
  const auto remember = static_cast<std::size_t>(
      std::ranges::count_if(list, [this](Member m) { return !gather_->registered.at(m).fresh; }));
  return (memory_ != Memory::kNone && is_quorum(remember)) || list.size() == names_.size();
}

// Who was started again may have sent another list of this number: one who was not is to gather,
// if there are enough of them.
bool AllReduceMachine::hand_to_another() {
  const Members members = here();
  if (memory_ != Memory::kNone || backs(members)) return false;
  std::vector<Member> others;
  for (const auto& [member, registration] : gather_->registered) {
    if (!registration.fresh) others.push_back(member);
  }
  if (others.empty() || !is_quorum(others.size())) return false;
  if (current_) {
    take_part_in(next_attempt(others.front()));
  } else {
    drop_gather(attempt_after(gather_->attempt, others.front()));
  }
  return true;
}

// A mean that may count as backed may have been committed by somebody who is gone: it stands, and
// is committed when those who hold it back it, or all who are here. Those who could not have made
// it give it no new attempt: that would let it stand before one that was chosen meanwhile.
void AllReduceMachine::decide() {
  if (hand_to_another()) return;
  Gather& gather = *gather_;
  if (!gather.asked_at && is_complete()) arrivals_.learn(now_ - gather.first_at);
  if (const Mean* const standing = standing_mean()) {
    const Members held_by = holders(standing->sha256);
    if (exclude_silent_holders(held_by)) return close();
    count_list();
    if (!standing->weak && !backs(here())) {
      return end_with({.at = gather.at,
                       .attempt = standing->attempt,
                       .members = standing->members,
                       .sha256 = standing->sha256,
                       .support = support_of(held_by.size(), true),
                       .holder = held_by.front()});
    }
    gather.held = standing->attempt;
    gather.sha256 = standing->sha256;
    gather.reducing = standing->members;
    gather.holders = held_by;
    gather.list = backs(held_by) ? held_by : here();
    say(LogLevel::kInfo, fmt::format("exchange {}: the mean of attempt {} over {} members stands",
                                     gather.at.exchange, gather.held, gather.reducing.size()));
  } else {
    const auto cause = find_cause();
    if (cause && gather.registered.contains(cause->second.member)) {
      gather.cause = {cause->first, cause->second.member};
      say(LogLevel::kWarning,
          fmt::format("exchange {}: {} waited in vain for {}, and they are kept apart",
                      gather.at.exchange, names_[cause->first], names_[cause->second.member]));
    }
    gather.reducing = gather.list = reducible();
    count_list();
  }
  start_run();
}

void AllReduceMachine::count_list() {
  if (lists_of(gather_->at) == 0) listed_ = Lists{.at = gather_->at};
  listed_->attempt = gather_->attempt;
  ++listed_->count;
}

unsigned AllReduceMachine::lists_of(Progress at) const {
  return listed_ && listed_->at == at ? listed_->count : 0;
}

bool AllReduceMachine::was_listed(Progress at, Attempt attempt) const {
  return listed_ && std::pair(listed_->at, listed_->attempt) >= std::pair(at, attempt);
}

void AllReduceMachine::start_run() {
  Gather& gather = *gather_;
  gather.running = true;
  gather.weak = !backs(gather.list);
  gather.progress_at = now_;
  gather.awaited = {gather.list.begin(), gather.list.end()};
  for (const auto& [member, registration] : gather.registered) {
    if (member != self_) send_list(member);
  }
  if (!gather.registered.contains(self_)) return;
  protocol::ReduceNote own = make_list(self_);
  receive_list(self_, own);
}

protocol::ReduceNote AllReduceMachine::make_list(Member to) const {
  const Gather& gather = *gather_;
  protocol::ReduceNote list = make_note(Kind::kList, gather.at, gather.attempt);
  list.members = gather.reducing;
  list.weak = gather.weak;
  if (gather.held != 0) {
    list.held = gather.held;
    list.sha256 = gather.sha256;
    const Registration& its = gather.registered.at(to);
    const auto holder = std::ranges::find_if(gather.holders, [&](Member m) {
      return !std::ranges::binary_search(its.lost, m) && !(its.blame && its.blame->member == m);
    });
    list.other = holder == gather.holders.end() ? gather.holders.front() : *holder;
  } else if (gather.cause && gather.cause->first == to) {
    list.other = gather.cause->second;
    list.count = 1;
  }
  return list;
}

void AllReduceMachine::send_list(Member to) { send(to, make_list(to)); }

// Of all who waited in vain, the one that had got least.
std::optional<std::pair<Member, AllReduceMachine::Blame>> AllReduceMachine::find_cause() const {
  std::optional<std::pair<Member, Blame>> first;
  for (const auto& [member, registration] : gather_->registered) {
    const auto& blame = registration.blame;
    if (blame && (!first || blame->count < first->second.count)) first = {member, *blame};
  }
  return first;
}

// All who have registered, less as few as make every two of the rest hear each other: who lacks
// most others goes first, the highest among equals, never ourselves.
Members AllReduceMachine::reducible() const {
  const auto& registered = gather_->registered;
  Members members = here();
  const auto lacks = [&](Member a, Member b) {
    if (gather_->cause == std::pair(a, b)) return true;
    if (a == self_) return liveness_.is_lost(b, now_);
    return std::ranges::binary_search(registered.at(a).lost, b);
  };
  // Who accuses others each time may be the cause itself.
  if (gather_->cause && lists_of(gather_->at) >= kListsMax) {
    Members others = members;
    std::erase_if(others, [&, &cause = *gather_->cause](Member m) {
      return m != self_ && (m == cause.first || m == cause.second);
    });
    if (!others.empty()) members = std::move(others);
  }
  while (true) {
    std::ptrdiff_t most = 0;
    Member worst = self_;
    for (const Member a : members) {
      const auto cuts = std::ranges::count_if(
          members, [&](Member b) { return a != b && (lacks(a, b) || lacks(b, a)); });
      if (cuts == 0 || a == self_ || cuts < most) continue;
      most = cuts;
      worst = a;
    }
    if (most == 0) return members;
    std::erase(members, worst);
  }
}

void AllReduceMachine::receive_done(Member from, const protocol::ReduceNote& note) {
  if (!gather_ || !gather_->running || progress_of(note) != gather_->at) return;
  if (note.attempt != gather_->attempt || !note.sha256) return;
  note_done(from, *note.sha256);
}

void AllReduceMachine::note_done(Member member, const Sha256Digest& sha256) {
  if (!gather_ || !gather_->running || gather_->awaited.erase(member) == 0) return;
  gather_->done[sha256].push_back(member);
  gather_->progress_at = now_;  // our own end too: the root of a tree has the mean first
  const bool is_other = gather_->held != 0 && sha256 != gather_->sha256;
  if (!is_other && !gather_->awaited.empty()) return;
  if (is_other || gather_->done.size() > 1) return settle_difference();
  const Members& list = gather_->list;
  const auto there =
      std::ranges::find_if(list, [this](Member m) { return !liveness_.is_lost(m, now_); });
  end_with({gather_->at, gather_->attempt, gather_->reducing, sha256,
            support_of(list.size(), gather_->weak), there == list.end() ? list.front() : *there});
}

// --- time ----------------------------------------------------------------------------------------

// Whoever waits for the list, or came too late for it, hears that we are there.
void AllReduceMachine::tick_gather() {
  if (!gather_) return;
  Gather& gather = *gather_;
  if (now_ >= gather.heartbeat_at) {
    gather.heartbeat_at = now_ + options_.answer / kHeartbeats;
    for (const auto& [member, registration] : gather.registered) {
      const bool waits = !gather.running || !std::ranges::binary_search(gather.list, member);
      if (member != self_ && waits) send(member, make_note(Kind::kWait, gather.at, 0));
    }
    if (lists_of(gather.at) > 0) {
      for (const Member m : listed_->excluded) send(m, make_note(Kind::kWait, gather.at, 0));
    }
  }
  if (!gather.running || now_ < run_ends_at()) return;
  if (gather.held != 0 && lists_of(gather.at) >= kListsMax) {
    for (const Member m : gather.holders) {  // there is nothing that they have to wait for
      if (gather.awaited.contains(m)) exclude(m, "holds a mean, as it says, but does not go on");
    }
  }
  for (const Member m : gather.awaited) {
    const bool is_late = now_ >= gather.progress_at + piece_wait() / 2;
    if (is_late && liveness_.heard_at(m) <= gather.progress_at) liveness_.call_silent(m, now_);
  }
  if (!current_) return gather_.reset();
  try_again_with(self_);
}

// Once a member is done, the others are soon: sooner than it gives up. Of a lost one nothing comes.
TimePoint AllReduceMachine::run_ends_at() const {
  const Gather& gather = *gather_;
  const bool any_done = gather.awaited.size() < gather.list.size();
  Duration wait = stretched(piece_wait());
  if (!last_) wait = std::max(wait, options_.stragglers.initial);  // links may come yet
  TimePoint end = gather.progress_at + (any_done ? 3 * wait / 4 : kRunWaits * wait);
  for (const Member m : gather.awaited) end = liveness_.waits_until(m, gather.progress_at, end);
  return end;
}

std::optional<TimePoint> AllReduceMachine::gather_deadline() const {
  if (!gather_) return std::nullopt;
  const Gather& gather = *gather_;
  TimePoint due = gather.heartbeat_at;
  if (gather.running) return std::min(due, run_ends_at());
  due = std::min(due, closes_at());
  if (gather.asked_at) {
    const TimePoint grace = *gather.asked_at + options_.answer / kGraceParts;
    if (grace > now_) due = std::min(due, grace);
  }
  for (const Member m : expected_) {
    if (gather.registered.contains(m) || liveness_.is_gone(m, now_)) continue;
    due = liveness_.waits_until(m, TimePoint{}, due);
  }
  return due;
}

}  // namespace starling::collective
