// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/gathering.h"

#include <algorithm>
#include <utility>

namespace starling::collective {
namespace {

// Who takes so many times as long from one exchange to the next as more than half of the members is
// not waited for.
constexpr int kSlownessMax = 4;
constexpr int kHeartbeats = 4;  // within the longest silence of a gatherer

}  // namespace

Gathering::Gathering(Progress at, Attempt attempt, Registrations none, const GatherView& view)
    : at_(at),
      attempt_(attempt),
      registered_(std::move(none)),
      first_at_(view.now),
      heartbeat_at_(view.now + view.options.answer / kHeartbeats) {}

void Gathering::add(Member member, Registration registration, TimePoint now) {
  if (most_at_ && !list_ && !registered_.contains(member)) last_ = {member, now};
  registered_.add(member, std::move(registration));
  if (registered_.are_most() && !most_at_) most_at_ = now;
}

Members Gathering::ask_all(const GatherView& view) {
  asked_at_ = view.now;
  late_.clear();
  const bool is_enough = ++asked_ > kAsksMax;
  Members missing = registered_.missing();
  for (const Member m : missing) {
    if (is_enough || view.history.is_left_out(at_, m)) late_.insert(m);
  }
  return missing;
}

Members Gathering::heartbeat(const GatherView& view) {
  Members to;
  if (view.now < heartbeat_at_) return to;
  heartbeat_at_ = view.now + view.options.answer / kHeartbeats;
  for (const auto& [member, registration] : registered_.all()) {
    const bool waits = !list_ || !list_->has(member);
    if (waits && member != registered_.self()) to.push_back(member);
  }
  for (Member m = 0; m < registered_.rule().members; ++m) {
    if (view.history.is_left_out(at_, m)) to.push_back(m);
  }
  return to;
}

const SentList& Gathering::set_list(SentList list, TimePoint now) {
  list.weak = !registered_.backs(list.to);
  list.awaited = {list.to.begin(), list.to.end()};
  list.sent_at = list.progress_at = now;
  return list_.emplace(std::move(list));
}

// --- whom to wait for ----------------------------------------------------------------------------

bool Gathering::is_due(const GatherView& view) const {
  if (list_ || registered_.size() == 0) return false;
  return is_complete(view) || view.now >= closes_at(view);
}

bool Gathering::asks_first(const GatherView& view) const {
  return view.options.any_mean && !asked_at_ && !is_complete(view);
}

bool Gathering::may_go_on(const GatherView& view) const {
  return registered_.are_quorum() || may_be_minority(view, Late::kLeftOut);
}

bool Gathering::is_here(Member member, const GatherView& view) const {
  return registered_.contains(member) || view.history.is_left_out(at_, member);
}

bool Gathering::is_complete(const GatherView& view) const {
  const NamedMean* const standing = registered_.standing();
  if (standing != nullptr && registered_.backs(registered_.holders(standing->sha256))) return true;
  const auto cause = asked_at_ && view.now >= grace_ends_at(view)
                         ? registered_.find_cause(view.history.sources(at_))
                         : std::nullopt;
  const auto is_lost_to_others = [&](Member member) {
    return cause && (cause->second.member == member || registered_.is_lost_to_any(member));
  };
  for (const Member m : view.expected) {
    const bool is_lost = view.liveness.is_lost(m, view.now) || is_lost_to_others(m);
    if (!is_here(m, view) && !is_lost) return false;
  }
  return registered_.are_quorum() || may_be_minority(view, Late::kAwaited);
}

// Half of the members or fewer go on only where none of them hears any of the others, also when
// asked again; or where these have not begun.
bool Gathering::may_be_minority(const GatherView& view, Late late) const {
  if (view.awaits_mean || !registered_.contains(registered_.self())) return false;
  const Members here = registered_.members();
  for (const Member m : registered_.missing()) {
    if (late == Late::kLeftOut && late_.contains(m) && !view.history.is_barred(m)) continue;
    const auto silent = view.liveness.silent_since(m);
    const bool is_silent = silent && view.now >= *silent + view.options.answer;
    if (!is_silent && !view.liveness.is_gone(m, view.now)) return false;
    const auto may_hear = [&](Member by) { return registered_.may_hear(by, m); };
    if (std::ranges::any_of(here, may_hear)) return false;
  }
  return true;
}

Members Gathering::stragglers(const GatherView& view) const {
  Members members;
  if (!most_at_ || is_complete(view)) return members;
  for (const Member m : view.expected) {
    if (!is_here(m, view) && !view.liveness.is_lost(m, view.now)) members.push_back(m);
  }
  return members;
}

std::optional<Member> Gathering::hears_more(const GatherView& view) const {
  Members elsewhere = registered_.missing();
  std::erase_if(elsewhere, [this](Member m) { return late_.contains(m); });
  const auto is_lost = [&](Member m) { return view.liveness.is_lost(m, view.now); };
  if (!std::ranges::all_of(elsewhere, is_lost)) return std::nullopt;
  for (const Member by : registered_.members()) {
    const auto may_hear = [&](Member m) { return registered_.may_hear(by, m); };
    if (std::ranges::any_of(elsewhere, may_hear)) return by;
  }
  return std::nullopt;
}

// --- time ----------------------------------------------------------------------------------------

Duration Gathering::lateness_max(const GatherView& view, TimePoint others, TimePoint from) {
  if (!view.ended_at) return view.options.stragglers.max;
  return std::max(view.options.stragglers.min,
                  *view.ended_at + kSlownessMax * (others - *view.ended_at) - from);
}

Duration Gathering::lateness_max(const GatherView& view) const {
  return most_at_ ? lateness_max(view, *most_at_, first_at_) : view.options.stragglers.max;
}

TimePoint Gathering::closes_at(const GatherView& view) const {
  const auto closes = [&] {
    if (!asked_at_) return first_at_ + std::min(view.arrivals, lateness_max(view));
    return view.options.any_mean ? grace_ends_at(view)
                                 : *asked_at_ + view.patience.stretched(view.options.answer);
  };
  return std::max(closes(), reads_until_);
}

TimePoint Gathering::run_ends_at(const GatherView& view) const {
  return std::max(list_->ends_at(view.patience.for_piece(), view.liveness), reads_until_);
}

void Gathering::resume(const GatherView& view) {
  if (std::exchange(has_resumed_, true)) return;
  reads_until_ = view.now + view.options.answer / kGraceParts;
}

// Requires: asked_at().
TimePoint Gathering::grace_ends_at(const GatherView& view) const {
  return *asked_at_ + view.options.answer / kGraceParts;
}

TimePoint Gathering::deadline(const GatherView& view) const {
  if (list_) return std::min(heartbeat_at_, run_ends_at(view));
  TimePoint due = heartbeat_at_;
  if (registered_.size() > 0) due = std::min(due, closes_at(view));  // else all were left out
  const auto at_last = [&](TimePoint time) {
    if (time > view.now) due = std::min(due, time);
  };
  if (asked_at_) at_last(grace_ends_at(view));
  for (const Member m : view.expected) {
    const bool is_lost =
        view.liveness.is_passed_over(m, view.now) || view.liveness.is_gone(m, view.now);
    if (registered_.contains(m) || is_lost) continue;
    due = view.liveness.waits_until(m, TimePoint{}, due);
  }
  for (Member m = 0; m < registered_.rule().members; ++m) {  // may_be_minority()
    if (const auto silent = view.liveness.silent_since(m)) at_last(*silent + view.options.answer);
  }
  return due;
}

}  // namespace starling::collective
