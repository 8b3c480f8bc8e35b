// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/exchange_pace.h"

namespace starling::collective {

using protocol::Exchange;

void ExchangePace::ended(Exchange exchange, TimePoint now) {
  // The time of the first one is that in which the network started.
  if (ended_at_ && exchange == next_) seconds_.add(to_seconds(now - *ended_at_));
  took(exchange + 1, now);
  ended_at_ = now;
}

void ExchangePace::took(Exchange next, TimePoint now) {
  next_ = next;
  ended_at_.reset();
  others_.in_step(next, now);
}

std::optional<Duration> ExchangePace::usual() const {
  if (seconds_.size() == 0) return std::nullopt;
  return from_seconds(seconds_.median());
}

std::optional<Exchange> ExchangePace::alone(TimePoint now) const {
  return others_.alone(usual(), now);
}

std::optional<Exchange> ExchangePace::confirmed(TimePoint now) const {
  return others_.confirmed(usual(), now);
}

}  // namespace starling::collective
