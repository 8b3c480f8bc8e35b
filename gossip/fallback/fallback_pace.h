// SPDX-License-Identifier: Apache-2.0
// How much a device may train while its coordinator is gone: no faster than the run's rounds went,
// no further than the run's last round, and at the learning rate of the round that its steps stand
// for. Without it a device would train at full speed, and many epochs would count as one update.
#pragma once

#include <optional>

#include "core/base/clock.h"
#include "core/base/ids.h"

namespace starling::gossip {

struct FallbackPace {
  Round round = 0;            // whose model the gossip began with; 0: the initial model
  Round rounds = 0;           // of the run
  std::uint64_t steps = 1;    // of this device in a round
  Duration per_round{};       // what a round usually took
  TimePoint from{};           // when the coordinator was lost
  std::uint64_t earlier = 0;  // steps by gossip since `round`, in earlier absences too
  std::uint64_t spent = 0;    // of those, in this absence

  // When `more` steps by gossip are due; none: the run has no round that they would stand for.
  std::optional<TimePoint> due(std::uint64_t more) const;
  // The round that the step behind `before` more steps stands for.
  Round round_at(std::uint64_t before) const;
};

}  // namespace starling::gossip
