// SPDX-License-Identifier: Apache-2.0
// What an exchange of a majority takes, and with it how far the others can have come since.
#pragma once

#include <optional>

#include "core/base/clock.h"
#include "core/base/recent_median.h"
#include "core/protocol/peer_messages.h"
#include "gossip/progress/ahead_bound.h"

namespace starling::collective {

class ExchangePace {
 public:
  explicit ExchangePace(protocol::Exchange first) : next_(first) {}

  // We have ended `exchange` with a majority.
  void ended(protocol::Exchange exchange, TimePoint now) {
    // The time of the first one is that in which the network started.
    if (ended_at_ && exchange == next_) seconds_.add(to_seconds(now - *ended_at_));
    took(exchange + 1, now);
    ended_at_ = now;
  }
  // Or have taken a model of the others with which `next` comes, the local steps before it done.
  void took(protocol::Exchange next, TimePoint now) {
    next_ = next;
    ended_at_.reset();
    others_.in_step(next, now);
  }

  // The median from end to end; none: not seen yet.
  std::optional<Duration> usual() const {
    return seconds_.size() > 0 ? std::optional(from_seconds(seconds_.median())) : std::nullopt;
  }
  // As gossip::AheadBound has them.
  std::optional<protocol::Exchange> alone(TimePoint now) const {
    return others_.alone(usual(), now);
  }
  std::optional<protocol::Exchange> confirmed(TimePoint now) const {
    return others_.confirmed(usual(), now);
  }

 private:
  gossip::AheadBound others_;
  protocol::Exchange next_;            // to be ended
  std::optional<TimePoint> ended_at_;  // the exchange before it, here
  RecentMedian seconds_;
};

}  // namespace starling::collective
