// SPDX-License-Identifier: Apache-2.0
// How long to wait for an answer: mean and four deviations of the round trips (RFC 6298). Every
// ping has a number of its own, so no sample is ambiguous (Karn's rule is not needed).
#pragma once

#include "core/base/clock.h"

namespace starling::gossip::membership {

class RoundTrip {
 public:
  void learn(Duration sample);
  bool learned() const { return learned_; }
  // Requires: learned(). mean + 4 deviations.
  Duration timeout() const { return mean_ + 4 * deviation_; }

 private:
  bool learned_ = false;
  Duration mean_{};
  Duration deviation_{};
};

}  // namespace starling::gossip::membership
