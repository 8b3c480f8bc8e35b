// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/quorum.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace starling::gossip {

using protocol::Support;

namespace {

// Two peers learn at most so far apart that their network is whole again.
constexpr Duration kReturnSpread = std::chrono::seconds(10);
// What a partition held up has come within this.
constexpr Duration kReturnHeld = std::chrono::seconds(1);
// Who is back has heard its neighbours within this and two exchanges.
constexpr Duration kReturnHeard = std::chrono::seconds(20);
// From the first silence to failure detection's last word on a partition.
constexpr Duration kDetection = std::chrono::seconds(15);
// The median of single exchanges is less than their mean where a few take long, and the mean is
// much more where one waited for somebody silent: so the median of the means of so many.
constexpr int kPaceExchanges = 4;
constexpr Duration kLeastAssumed = std::chrono::seconds(1);

}  // namespace

Quorum::Quorum(std::size_t members, TimePoint now, const Support& before)
    : exempt_(members <= 2),
      members_(members, true),
      reachable_(members),
      since_(now - std::chrono::seconds(before.quorum_seconds)),
      lost_(before.minority && !exempt_),
      back_at_(now) {}

bool Quorum::reach(protocol::Member member, bool reachable, TimePoint now) {
  if (member >= members_.size() || members_[member] == reachable) return false;
  const bool had = held();
  members_[member] = reachable;
  if (reachable) {
    ++reachable_;
  } else {
    --reachable_;
    somebody_lost_at_ = now;
  }
  if (had && !held()) lost_ = true;
  if (!had && held()) back_at_ = now;
  return had != held();
}

std::string Quorum::tell() const {
  const std::size_t members = members_.size();
  if (held()) {
    return fmt::format("{} of {} members can be reached again, a quorum", reachable_, members);
  }
  return fmt::format(
      "only {} of {} members can be reached, no quorum of {}: trains on at the usual pace, and "
      "takes "
      "the model of a quorum when it meets one; if the others are gone for good, a new roster "
      "without them ends this",
      reachable_, members, members / 2 + 1);
}

// No majority was there all the time, or it would have been heard.
TimePoint Quorum::settled_at() const { return back_at_ + kReturnHeard + 2 * pace(Duration{}); }

bool Quorum::is_minority(TimePoint now) const { return lost_ && (!held() || now < settled_at()); }

bool Quorum::counts(const Support& theirs, TimePoint now) const {
  if (!theirs.minority || !held()) return true;
  // Of peers that were all minorities and meet again, some are settled a little before others.
  return lost_ && now < settled_at() + kReturnSpread;
}

bool Quorum::outranked_by(const Support& theirs, TimePoint told_at, TimePoint now) const {
  if (!held() || !is_minority(now) || theirs.minority) return false;
  // What was said before says nothing of the time between, and may be under way until now.
  if (told_at < back_at_ + kReturnHeld) return false;
  return told_at - std::chrono::seconds(theirs.quorum_seconds) + kReturnSpread <= back_at_;
}

void Quorum::rejoin(const Support& theirs, TimePoint told_at) {
  lost_ = false;
  since_ = told_at - std::chrono::seconds(theirs.quorum_seconds);
}

Support Quorum::support(TimePoint now) const {
  if (is_minority(now)) return {.minority = true};
  const Duration age = now - (lost_ ? back_at_ : since_);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(age).count();
  constexpr auto kMost = std::numeric_limits<std::uint16_t>::max();
  return {.quorum_seconds = static_cast<std::uint16_t>(std::min<std::int64_t>(seconds, kMost))};
}

bool Quorum::in_doubt(TimePoint now) const {
  if (exempt_) return false;
  return !held() || (somebody_lost_at_ && now < *somebody_lost_at_ + kDetection);
}

void Quorum::learn(Duration exchange) {
  sum_ += to_seconds(exchange);
  if (++summed_ < kPaceExchanges) return;
  pace_.add(sum_ / kPaceExchanges);
  sum_ = summed_ = 0;
}

Duration Quorum::assumed_pace(Duration work) { return std::max(2 * work, kLeastAssumed); }

Duration Quorum::pace(Duration work) const {
  return knows_pace() ? from_seconds(pace_.median()) : held() ? 2 * work : assumed_pace(work);
}

}  // namespace starling::gossip
