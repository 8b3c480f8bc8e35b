// SPDX-License-Identifier: Apache-2.0
// How far the attempts that others name move a member within an exchange: one of them may lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>

#include "gossip/collective/reducer.h"

namespace starling::collective {

// Each attempt has one gatherer: round k of gatherer g has the number k n + g + 1.
inline Member owner_of(Attempt attempt, std::size_t members) {
  return static_cast<Member>((attempt - 1) % members);
}

class AttemptBounds {
 public:
  explicit AttemptBounds(std::size_t members) : members_(members) {}

  // Near `promised`, or more than half of the members have named one as high.
  bool is_plausible(Member from, Attempt attempt, Attempt promised) {
    if (attempt == 0 || attempt > kAttemptMax) return false;
    if (attempt <= promised + kRoundsAhead * members_) return true;
    Attempt& named = named_[from];
    named = std::max(named, attempt);
    const auto further = std::ranges::count_if(
        named_, [attempt](const auto& entry) { return entry.second >= attempt; });
    return 2 * static_cast<std::size_t>(further) > members_;
  }
  // Whether `promised` is left now because `from` asks for `attempt`. Who asks too often is
  // followed once our own attempt has come to nothing.
  bool follows(Member from, Attempt attempt, Attempt promised) {
    if (attempt <= promised || promised == 0 || left_at_[from]++ < kFollowedMax) return true;
    put_off(attempt);
    return false;
  }
  // It is asked for, and not followed now.
  void put_off(Attempt attempt) { later_ = std::max(later_, attempt); }
  // The highest that was asked for and not followed.
  Attempt later() const { return later_; }

 private:
  // Rounds go up one by one: so many ahead of us is only where a majority is.
  static constexpr std::size_t kRoundsAhead = 8;
  // Attempts of one exchange that are left at once because one and the same member says so.
  static constexpr unsigned kFollowedMax = 4;
  static constexpr Attempt kAttemptMax = Attempt{1} << 31;  // leaves room on the wire

  std::size_t members_;
  std::map<Member, Attempt> named_;     // the highest that each has spoken of
  std::map<Member, unsigned> left_at_;  // attempts that were left when it said so
  Attempt later_ = 0;
};

}  // namespace starling::collective
