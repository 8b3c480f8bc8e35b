// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/doubted_members.h"

#include <algorithm>

namespace starling::collective {

using protocol::Member;

namespace {

// For 1/16 of a wait at first, so that a network whose members come back is soon together again;
// for a whole one where no model came; and for up to 64 of them.
constexpr unsigned kDoublingsToOne = 4;
constexpr unsigned kDoublingsMax = kDoublingsToOne + 6;

}  // namespace

void DoubtedMembers::led_on(Member member, TimePoint now) { doubt(member, now, 0); }

void DoubtedMembers::came_to_nothing(Member member, TimePoint now) {
  doubt(member, now, kDoublingsToOne);
}

void DoubtedMembers::doubt(Member member, TimePoint now, unsigned doublings) {
  const Duration shortest = wait_ / (1U << kDoublingsToOne);
  Doubt& its = doubts_[member];
  const bool is_forgotten = now >= its.until + shortest * (1U << kDoublingsMax);
  its.doublings = is_forgotten ? doublings : std::max(its.doublings, doublings);
  its.until = now + shortest * (1U << its.doublings);
  its.doublings = std::min(its.doublings + 1, kDoublingsMax);
}

bool DoubtedMembers::contains(Member member, TimePoint now) const {
  const auto doubt = doubts_.find(member);
  return doubt != doubts_.end() && now < doubt->second.until;
}

}  // namespace starling::collective
