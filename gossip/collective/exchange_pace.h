// SPDX-License-Identifier: Apache-2.0
// How far exchanges can have come since we were in step with the others: what bounds what is
// believed of those who say that they are far ahead.
#pragma once

#include <optional>

#include "core/base/clock.h"
#include "core/base/recent_median.h"
#include "core/protocol/peer_messages.h"

namespace starling::collective {

class ExchangePace {
 public:
  explicit ExchangePace(protocol::Exchange first) : in_step_(first) {}

  // We have ended `exchange` with a majority.
  void ended(protocol::Exchange exchange, TimePoint now);
  // Or have taken a model of the others with which `next` comes, the local steps before it done.
  void took(protocol::Exchange next, TimePoint now);

  std::optional<Duration> usual() const;
  // The exchange that is to be ended by now, had they gone on `factor` times as fast as with us.
  // None: no pace was seen yet.
  std::optional<protocol::Exchange> explained(double factor, TimePoint now) const;

 private:
  protocol::Exchange in_step_;  // to be ended next
  std::optional<TimePoint> in_step_at_;
  std::optional<TimePoint> ended_at_;  // the exchange before in_step_, here
  RecentMedian seconds_;
};

}  // namespace starling::collective
