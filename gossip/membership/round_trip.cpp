// SPDX-License-Identifier: Apache-2.0
#include "gossip/membership/round_trip.h"

namespace starling::gossip::membership {

void RoundTrip::learn(Duration sample) {
  if (!learned_) {
    learned_ = true;
    mean_ = sample;
    deviation_ = sample / 2;
    return;
  }
  deviation_ += (std::chrono::abs(mean_ - sample) - deviation_) / 4;
  mean_ += (sample - mean_) / 8;
}

}  // namespace starling::gossip::membership
