// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/quantities.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "core/telemetry/progress.h"

namespace starling::telemetry {

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  for (; amount >= 999.95 && unit + 1 < kUnits.size(); ++unit) amount /= 1000;
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1000);
  if (seconds < 60) return fmt::format("{:.3g} s", seconds);
  return format_elapsed(from_seconds(seconds));
}

}  // namespace starling::telemetry
