// SPDX-License-Identifier: Apache-2.0
// Time is a parameter. Machines take TimePoint (steady, for deadlines); wall time exists only for
// records and certificates.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace starling {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  virtual WallTime wall_now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint now() const override;
  WallTime wall_now() const override;
};

double to_seconds(Duration duration);
// What is more than 9e9 s (285 years) away is taken for that.
Duration from_seconds(double seconds);

// "2026-11-20T09:10:11.123Z" (RFC 3339, UTC, milliseconds); parsing takes any offset.
std::string format_rfc3339(WallTime time);
[[nodiscard]] Result<WallTime> parse_rfc3339(std::string_view text);

// "250ms", "60s", "5m", "1h", "30d" and back in the largest unit that is exact.
[[nodiscard]] Result<Duration> parse_duration(std::string_view text);
std::string format_duration(Duration duration);

}  // namespace starling
