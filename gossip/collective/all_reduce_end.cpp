// SPDX-License-Identifier: Apache-2.0
// How a commit ends an exchange, and what members that come late are told.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/list_some.h"
#include "gossip/collective/all_reduce_machine.h"

namespace starling::collective {

namespace {

constexpr Duration kSayEvery = std::chrono::seconds(10);
// An exchange is slow that takes so many times this member's work before it, if it is longer than
// this part of the longest silence.
constexpr int kSlowTimes = 4;
constexpr int kSlowParts = 4;
// A member that asks about old exchanges gets the same answer again after this part of `answer`.
constexpr int kToldParts = 4;

}  // namespace

void AllReduceMachine::receive(Member from, Progress at, Attempt attempt, reduce::Commit& its) {
  if (!are_members(its.members) || attempt == 0 || its.holder >= names_.size()) return;
  const Commit commit{at, attempt, std::move(its.members), its.sha256, its.support, its.holder};
  if (at > open()) return hear_of_further(from, after(at, commit.support), commit.members);
  if (at != open()) return;
  if (!current_) {
    if (committed_ || !told_.try_emplace(from, commit).second) return;
    const auto tellers = std::ranges::count_if(
        told_, [&](const auto& entry) { return entry.second.sha256 == commit.sha256; });
    if (tellers < kTellersMin && members() > 2) return;
    committed_ = commit;
    if (gather_ && gather_->at() == at) tell_registered(commit);
  } else if (current_->holds(commit.sha256)) {
    // Whether it counts as a majority's, the list has said; another gatherer alone may know better.
    const bool is_as_listed = is_quorum(commit.support) == !current_->held.weak;
    if (is_as_listed || from == current_->gatherer()) end_with(commit);
  } else if (current_->tellers.try_emplace(from, commit.sha256).first->second == commit.sha256) {
    look_for(commit, from);
  }
}

// The exchange has ended, as we know ourselves.
void AllReduceMachine::end_with(Commit commit) {
  settle(commit);
  if (!current_) {
    committed_ = std::move(commit);
  } else if (current_->holds(commit.sha256)) {
    Floats mean = std::move(current_->held.floats);
    finish(std::move(commit), std::move(mean));
  } else {
    look_for(std::move(commit), self_);
  }
}

// Sets the gatherer of the next exchange and the members that it waits for, and sends the commit to
// the members that wait for a list of ours.
void AllReduceMachine::settle(const Commit& commit) {
  settled_ = commit.at;
  gathered_.reset();
  const Gathering* const gather = gather_ && gather_->at() == commit.at ? &*gather_ : nullptr;
  if (gather != nullptr) gathered_ = {gather->first_at(), gather->lateness_max(view())};
  say_who_was_slow(commit);
  ended_at_ = now_;
  gatherer_ = owner(commit.attempt);
  expected_ = {commit.members.begin(), commit.members.end()};
  if (gather == nullptr) return;
  for (const auto& [member, its] : gather->registered().all()) expected_.insert(member);
  for (Member m = 0; m < names_.size(); ++m) {
    if (m != self_) send_commit(m, commit);
  }
  gather_.reset();
}

void AllReduceMachine::finish(Commit commit, Floats mean) {
  const Progress at = commit.at;
  if (settled_ != at) settle(commit);
  if (gather_ && gather_->at() == at) {  // they came while this member looked for the mean
    tell_registered(commit);
    gather_.reset();
  }
  if (current_->longest_wait > Duration::zero()) pieces_.learn(current_->longest_wait);
  // What a majority that remembers holds now has passed all that we may have promised before.
  const bool held_here = current_->held.attempt == commit.attempt && is_quorum(commit.support);
  if (memory_ == Memory::kButForOne || held_here) memory_ = Memory::kWhole;
  // The others have got all that they waited for.
  if (!current_->holds(commit.sha256)) {
    auto in_vain = current_->blame;  // in the attempt before
    const auto blamed = current_->blame_at(patience(), liveness_, now_);
    const bool is_unheard = blamed && liveness_.heard_at(blamed->member) <= current_->promised_at;
    if (is_unheard) in_vain = blamed;
    if (in_vain && !in_vain->wrong) liveness_.call_silent(in_vain->member, now_);
  }
  commit.holder = self_;
  tell_left_out(commit);
  last_ = EndedExchange{std::move(commit), std::move(mean)};
  former_.reset();
  is_running_ = true;
  const Commit& ended = last_->commit;
  current_.reset();
  donors_.clear();
  next_ = after(at, ended.support);
  if (2 * ended.support > names_.size()) claims_.pace().ended(at.exchange, now_);
  const bool without_us = !std::ranges::binary_search(ended.members, self_);
  if (without_us && !is_left_out_) {
    say_seldom("without us",
               fmt::format("exchange {} ended without us, in attempt {}; we take its mean",
                           at.exchange, ended.attempt));
  }
  is_left_out_ = without_us;
  say_who_is_missing(ended);
  actions_.emplace_back(Finished{at, next_, ended.attempt, ended.members, last_->mean});
}

// Sends the commit to those who asked where we are, and in a group to every member that is not in
// the mean: the gatherer may not reach it, and it may wait for us, who registered elsewhere.
void AllReduceMachine::tell_left_out(const Commit& commit) {
  const auto askers = std::exchange(askers_, {});
  const bool were_there = std::ranges::binary_search(commit.members, self_);
  const bool tells_all = options_.any_mean && were_there && owner(commit.attempt) != self_;
  for (Member m = 0; m < names_.size(); ++m) {
    const bool is_told = m != self_ && (tells_all || askers.contains(m));
    if (is_told && !std::ranges::binary_search(commit.members, m)) send_commit(m, commit);
  }
}

// At most once in a while, however often members fall out and return in between.
void AllReduceMachine::say_who_is_missing(const Commit& commit) {
  Members missing;
  for (Member m = 0; m < names_.size(); ++m) {
    if (m != self_ && !std::ranges::binary_search(commit.members, m)) missing.push_back(m);
  }
  if (missing == missing_ || (missing_said_at_ && now_ < *missing_said_at_ + kSayEvery)) return;
  missing_ = std::move(missing);
  missing_said_at_ = now_;
  const Exchange exchange = commit.at.exchange;
  if (missing_.empty()) {
    return say(LogLevel::kInfo, fmt::format("exchange {}: all members take part again", exchange));
  }
  const std::string who = list_some(missing_, kNamedMax, [this](Member m) {
    return fmt::format(
        "{} ({})", names_[m],
        liveness_.is_lost(m, now_) ? "does not answer" : "late, or not in reach of all");
  });
  say(LogLevel::kWarning, fmt::format("exchange {} ended without {}", exchange, who));
}

// Whom a slow exchange waited for. Who is late below all deadlines is waited for in each exchange,
// and nothing else shows who it is. A member sees when lists and commits come; only their gatherer
// knows for whom it waited.
void AllReduceMachine::say_who_was_slow(const Commit& commit) {
  if (!current_ || !current_->failed.empty() || !is_running_) return;
  const Participation& c = *current_;
  const Duration took = now_ - c.begun_at;
  const Duration least = options_.answer / kSlowParts;
  if (took < kSlowTimes * c.work.value_or(least)) return;
  const auto is_cause = [&](Duration wait, int part) {
    return wait >= std::max(took / part, least);
  };
  const auto seconds = [](Duration wait) { return fmt::format("{:.1f} s", to_seconds(wait)); };
  const auto say_slow = [&](Member cause, const std::string& how) {
    say_seldom("slow: " + names_[cause],
               fmt::format("exchange {} took {}: {}", commit.at.exchange, seconds(took), how),
               LogLevel::kInfo);
  };
  const Member gatherer = owner(commit.attempt);
  if (gatherer != self_) {
    const Duration for_list = (c.joined == c.promised ? c.joined_at : now_) - c.promised_at;
    const Duration for_commit = c.held.attempt == commit.attempt ? now_ - c.held_at : Duration{};
    if (!is_cause(for_list + for_commit, 2)) return;
    return say_slow(
        gatherer, fmt::format("{} gathers it, and this peer waited {} for its list and {} for its "
                              "commit; its log names the late member, unless it was late itself",
                              names_[gatherer], seconds(for_list), seconds(for_commit)));
  }
  const SentList* const list = gather_ ? gather_->list() : nullptr;
  if (list == nullptr) return;
  if (const auto& last = gather_->last(); last && is_cause(last->second - *gather_->most_at(), 2)) {
    return say_slow(last->first,
                    fmt::format("{} was ready {} after most others", names_[last->first],
                                seconds(last->second - *gather_->most_at())));
  }
  if (list->last && list->last->first != self_ && is_cause(list->last->second, 2)) {
    return say_slow(list->last->first,
                    fmt::format("{} was done {} after the others", names_[list->last->first],
                                seconds(list->last->second)));
  }
  const auto* const first = list->first_wait();
  if (first == nullptr) return;
  const auto& [by, waited] = *first;
  const std::chrono::milliseconds wait(waited.milliseconds);
  if (!is_cause(wait, 6)) return;
  say_slow(waited.of, fmt::format("{} waited {} for numbers of {}", names_[by], seconds(wait),
                                  names_[waited.of]));
}

// What comes after `at` has ended with a mean that so many hold. Of two members neither is a
// majority, and none gives way.
Progress AllReduceMachine::after(Progress at, std::size_t support) const {
  return {is_quorum(support) ? at.exchange + 1 : at.backed, at.exchange + 1};
}

std::size_t AllReduceMachine::support_of(std::size_t members, bool weak) const {
  return weak ? std::min(members, names_.size() / 2) : members;
}

// There is nothing to be begun at `at` any more.
const EndedExchange* AllReduceMachine::ended_with(Progress at) const {
  if (last_ && last_->commit.at == at) return &*last_;
  return former_ && former_->commit.at == at ? &*former_ : nullptr;
}

// A member that asks about an old exchange is told once in each exchange where we are, and again
// after a while, since the answer may be lost. Otherwise everything that a link held back would be
// answered one by one, before the notes that the member waits for.
bool AllReduceMachine::may_tell_again(Member to) {
  const auto told = told_ahead_.find(to);
  const bool knows = told != told_ahead_.end() && told->second.at == open();
  if (knows && now_ < told->second.when + options_.answer / kToldParts) return false;
  told_ahead_[to] = {open(), now_};
  return true;
}

// `otherwise` is the answer as long as nobody knows yet whether the exchange is over.
bool AllReduceMachine::answer_if_over(Member to, Progress at, Attempt attempt,
                                      reduce::What otherwise) {
  const EndedExchange* const ended = ended_with(at);
  const Commit* commit = ended != nullptr ? &ended->commit : nullptr;
  if (committed_ && committed_->at == at) commit = &*committed_;
  if (commit != nullptr) {
    if (gathered_ && !expected_.contains(to)) {
      arrivals_.learn(std::min(now_ - gathered_->from, gathered_->lateness_max));
    }
    expected_.insert(to);  // it comes to the next one
    send_commit(to, *commit);
    return true;
  }
  if (at >= open()) return false;
  // Not for what it said long ago, as all that a link held back: it would be waited for as often.
  const bool is_old = is_past(at);
  if (!is_old) expected_.insert(to);
  if (given_up_ && at >= given_up_->current.at) {  // nothing is copied yet, and may never be
    send(to, at, attempt, std::move(otherwise));
    return true;
  }
  if (is_old && !may_tell_again(to)) return true;
  Members donors;
  if (!given_up_) donors = donors_;
  if (donors.empty() && last_) {
    std::ranges::remove_copy_if(last_->commit.members, std::back_inserter(donors),
                                [this](Member m) { return liveness_.is_lost(m, now_); });
  }
  if (donors.empty()) donors = {self_};
  send(to, given_up_ ? given_up_->current.at : open(), 0, reduce::Ahead{std::move(donors)});
  return true;
}

void AllReduceMachine::tell_registered(const Commit& commit) {
  for (const auto& [member, its] : gather_->registered().all()) {
    if (member != self_) send_commit(member, commit);
  }
}

void AllReduceMachine::send_commit(Member to, const Commit& commit) {
  send(to, commit.at, commit.attempt,
       reduce::Commit{commit.members, commit.sha256, static_cast<std::uint16_t>(commit.support),
                      commit.holder});
}

std::optional<EndedExchange> AllReduceMachine::backed_mean() const {
  const std::optional<EndedExchange>& last = last_ ? last_ : former_;
  if (!last || !is_quorum(last->commit.support)) return std::nullopt;
  return std::ranges::binary_search(last->commit.members, self_) ? last : std::nullopt;
}

// This member takes part in its exchange no more.
void AllReduceMachine::offer(EndedExchange former) {
  former_ = std::move(former);
  former_->commit.holder = self_;
}

}  // namespace starling::collective
