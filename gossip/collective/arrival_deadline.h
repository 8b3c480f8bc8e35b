// SPDX-License-Identifier: Apache-2.0
// How long after the first the last one of an exchange is waited for, learnt from how late the last
// ones were: smoothed mean and deviation as TCP times its retransmissions (RFC 6298).
#pragma once

#include <algorithm>
#include <utility>

#include "core/base/clock.h"

namespace starling::collective {

// Who comes after the deadline has still been measured, so a member that is always slow moves the
// deadline beyond itself (up to `max`); no doubling is needed.
class ArrivalDeadline {
 public:
  struct Options {
    Duration initial = std::chrono::seconds(10);
    Duration min = std::chrono::milliseconds(200);
    Duration max = std::chrono::seconds(60);
  };

  explicit ArrivalDeadline(const Options& options) : options_(options) {}

  // min <= mean + 4 deviations <= max; `initial` before anything was seen.
  Duration duration() const {
    const Duration wait = learned_ ? mean_ + 4 * deviation_ : options_.initial;
    return std::clamp(wait, options_.min, options_.max);
  }
  // The smoothed mean alone; `initial` before anything was seen.
  Duration usual() const { return learned_ ? mean_ : options_.initial; }
  // Beyond `max` it changes nothing but how long it is remembered.
  void learn(Duration lateness) {
    lateness = std::clamp(lateness, Duration::zero(), options_.max);
    if (!std::exchange(learned_, true)) {
      mean_ = lateness;
      deviation_ = lateness / 2;
      return;
    }
    const Duration error = lateness - mean_;
    deviation_ += (std::max(error, -error) - deviation_) / 4;
    mean_ += error / 8;
  }

 private:
  Options options_;
  bool learned_ = false;
  Duration mean_{};
  Duration deviation_{};
};

}  // namespace starling::collective
