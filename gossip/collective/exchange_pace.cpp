// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/exchange_pace.h"

#include <algorithm>
#include <limits>

namespace starling::collective {

using protocol::Exchange;

void ExchangePace::ended(Exchange exchange, TimePoint now) {
  // From end to end: the time of the first one is that in which the network started.
  if (ended_at_ && exchange == in_step_) seconds_.add(to_seconds(now - *ended_at_));
  took(exchange + 1, now);
  ended_at_ = now;
}

void ExchangePace::took(Exchange next, TimePoint now) {
  in_step_ = next;
  in_step_at_ = now;
  ended_at_.reset();
}

std::optional<Duration> ExchangePace::usual() const {
  if (seconds_.size() == 0) return std::nullopt;
  return from_seconds(seconds_.median());
}

std::optional<Exchange> ExchangePace::explained(double factor, TimePoint now) const {
  if (!in_step_at_ || seconds_.size() == 0) return std::nullopt;
  const double exchanges =
      factor * to_seconds(now - *in_step_at_) / std::max(seconds_.median(), 1e-9);
  constexpr double kMost = 1e18;
  return in_step_ + static_cast<Exchange>(std::min(exchanges, kMost));
}

}  // namespace starling::collective
