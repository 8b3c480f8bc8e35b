// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "core/base/clock.h"

namespace starling::testing {

// The system's clock, with wall time put forward as a test needs.
class ShiftedClock final : public Clock {
 public:
  TimePoint now() const override { return SystemClock().now(); }
  WallTime wall_now() const override { return SystemClock().wall_now() + shift_.load(); }
  void put_forward(std::chrono::milliseconds by) { shift_ = shift_.load() + by; }

 private:
  std::atomic<std::chrono::milliseconds> shift_{};
};

}  // namespace starling::testing
