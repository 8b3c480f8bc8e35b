// SPDX-License-Identifier: Apache-2.0
// How long after the first the last one of an exchange is waited for, learnt from how late the last
// ones were: smoothed mean and deviation as TCP times its retransmissions (RFC 6298).
#pragma once

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
  Duration duration() const;
  // The smoothed mean alone; `initial` before anything was seen.
  Duration usual() const { return learned_ ? mean_ : options_.initial; }
  void learn(Duration lateness);

 private:
  Options options_;
  bool learned_ = false;
  Duration mean_{};
  Duration deviation_{};
};

}  // namespace starling::collective
