// SPDX-License-Identifier: Apache-2.0
// How often something that others can cause at will gets a line of the log: a few times within a
// period; what is beyond is counted.
#pragma once

#include <cstdint>

#include "core/base/clock.h"

namespace starling {

class LineBudget {
 public:
  static constexpr int kLines = 5;
  static constexpr Duration kPeriod = std::chrono::minutes(1);

  LineBudget() = default;
  LineBudget(int lines, Duration period) : lines_(lines), period_(period) {}

  // Whether this occasion gets its line.
  bool spend(TimePoint now) {
    if (now >= until_) {
      until_ = now + period_;
      left_ = lines_;
    }
    if (left_ == 0) {
      ++unsaid_;
      return false;
    }
    --left_;
    return true;
  }
  // Of the occasions that got none, since this was asked last.
  std::uint64_t take_unsaid() {
    const std::uint64_t unsaid = unsaid_;
    unsaid_ = 0;
    return unsaid;
  }

 private:
  int lines_ = kLines;
  Duration period_ = kPeriod;
  int left_ = 0;
  TimePoint until_ = TimePoint::min();
  std::uint64_t unsaid_ = 0;
};

}  // namespace starling
