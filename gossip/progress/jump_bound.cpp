// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/jump_bound.h"

#include <algorithm>

namespace starling::gossip {

using protocol::Exchange;

namespace {

constexpr double kSingleFactor = 4;
constexpr double kSeveralFactor = 16;
constexpr Exchange kJumpSlack = 8;
constexpr double kJumpMax = 1e18;

}  // namespace

JumpBound::JumpBound(std::optional<Duration> age, TimePoint now) {
  if (age) began_ = now - std::max(*age, Duration::zero());
}

void JumpBound::trained(Duration phase) { quickest_ = std::min(quickest_.value_or(phase), phase); }

std::optional<Exchange> JumpBound::limit(std::size_t witnesses, Exchange slack,
                                         TimePoint now) const {
  if (!began_) return std::nullopt;
  if (!quickest_) return kJumpSlack + slack;
  const double factor = witnesses > 1 ? kSeveralFactor : kSingleFactor;
  const double phase = std::max(to_seconds(*quickest_), 1e-9);
  const double exchanges = factor * to_seconds(now - *began_) / phase;
  return static_cast<Exchange>(std::clamp(exchanges, 0.0, kJumpMax)) + kJumpSlack + slack;
}

}  // namespace starling::gossip
