// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/attempt_bounds.h"

#include <algorithm>

namespace starling::collective {
namespace {

// Rounds go up one by one: so many ahead of us is only where a majority is.
constexpr std::size_t kRoundsAhead = 8;
// Attempts of one exchange that are left at once because one and the same member says so.
constexpr unsigned kFollowedMax = 4;
constexpr Attempt kAttemptMax = Attempt{1} << 31;  // leaves room on the wire

}  // namespace

bool AttemptBounds::is_plausible(Member from, Attempt attempt, Attempt promised) {
  if (attempt == 0 || attempt > kAttemptMax) return false;
  if (attempt <= promised + kRoundsAhead * members_) return true;
  Attempt& named = named_[from];
  named = std::max(named, attempt);
  const auto further = std::ranges::count_if(
      named_, [attempt](const auto& entry) { return entry.second >= attempt; });
  return 2 * static_cast<std::size_t>(further) > members_;
}

bool AttemptBounds::follows(Member from, Attempt attempt, Attempt promised) {
  if (attempt <= promised || promised == 0 || left_at_[from]++ < kFollowedMax) return true;
  put_off(attempt);
  return false;
}

}  // namespace starling::collective
