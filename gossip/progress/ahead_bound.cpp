// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/ahead_bound.h"

#include <algorithm>

namespace starling::gossip {

using protocol::Exchange;

namespace {

// Nobody who does not wait for us is more times as fast, and a little further.
constexpr double kFactor = 16;
constexpr Exchange kSlack = 8;
constexpr double kExchangesMax = 1e18;

}  // namespace

void AheadBound::in_step(Exchange next, TimePoint now) {
  next_ = next;
  at_ = now;
}

std::optional<Exchange> AheadBound::explained(std::optional<Duration> pace, double factor,
                                              TimePoint now) const {
  if (!at_ || !pace) return std::nullopt;
  const double exchanges = factor * to_seconds(now - *at_) / std::max(to_seconds(*pace), 1e-9);
  return next_ + static_cast<Exchange>(std::min(exchanges, kExchangesMax));
}

std::optional<Exchange> AheadBound::alone(std::optional<Duration> pace, TimePoint now) const {
  return explained(pace, 1, now);
}

std::optional<Exchange> AheadBound::confirmed(std::optional<Duration> pace, TimePoint now,
                                              Exchange slack) const {
  const auto most = explained(pace, kFactor, now);
  if (!most) return std::nullopt;
  return *most + kSlack + slack;
}

}  // namespace starling::gossip
