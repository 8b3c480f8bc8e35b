// SPDX-License-Identifier: Apache-2.0
// Exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", AWS 2015): the
// n-th delay is uniform in [minimum, min(maximum, minimum * 2^n)].
#pragma once

#include "core/base/clock.h"
#include "core/base/rng.h"

namespace starling {

class Backoff {
 public:
  struct Options {
    Duration minimum = std::chrono::milliseconds(200);
    Duration maximum = std::chrono::seconds(30);
  };

  Backoff(const Options& options, Rng rng) : options_(options), rng_(rng) {}

  Duration next();
  void reset() { failures_ = 0; }

 private:
  Options options_;
  Rng rng_;
  int failures_ = 0;
};

}  // namespace starling
