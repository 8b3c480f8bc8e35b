// SPDX-License-Identifier: Apache-2.0
// A line that would be logged again and again: it is at once, a minute later, and then after ever
// longer pauses.
#pragma once

#include <algorithm>

#include "core/base/clock.h"

namespace starling {

class SeldomLine {
 public:
  // Whether to log it now.
  bool is_due(TimePoint now) {
    if (now < next_) return false;
    next_ = now + pause_;
    pause_ = std::min(2 * pause_, kPauseMax);
    return true;
  }

 private:
  static constexpr Duration kPauseMax = std::chrono::hours(1);
  TimePoint next_ = TimePoint::min();
  Duration pause_ = std::chrono::minutes(1);
};

}  // namespace starling
