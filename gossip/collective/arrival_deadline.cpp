// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/arrival_deadline.h"

#include <algorithm>

namespace starling::collective {

Duration ArrivalDeadline::duration() const {
  const Duration wait = learned_ ? mean_ + 4 * deviation_ : options_.initial;
  return std::clamp(wait, options_.min, options_.max);
}

void ArrivalDeadline::learn(Duration lateness) {
  // Beyond `max` it changes nothing but how long it is remembered.
  lateness = std::clamp(lateness, Duration::zero(), options_.max);
  if (!learned_) {
    mean_ = lateness;
    deviation_ = lateness / 2;
    learned_ = true;
    return;
  }
  const Duration error = lateness - mean_;
  deviation_ += (std::max(error, -error) - deviation_) / 4;
  mean_ += error / 8;
}

}  // namespace starling::collective
