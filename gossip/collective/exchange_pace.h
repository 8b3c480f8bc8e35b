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
  void ended(protocol::Exchange exchange, TimePoint now);
  // Or have taken a model of the others with which `next` comes, the local steps before it done.
  void took(protocol::Exchange next, TimePoint now);

  // The median from end to end; none: not seen yet.
  std::optional<Duration> usual() const;
  // As gossip::AheadBound has them.
  std::optional<protocol::Exchange> alone(TimePoint now) const;
  std::optional<protocol::Exchange> confirmed(TimePoint now) const;

 private:
  gossip::AheadBound others_;
  protocol::Exchange next_;            // to be ended
  std::optional<TimePoint> ended_at_;  // the exchange before it, here
  RecentMedian seconds_;
};

}  // namespace starling::collective
