// SPDX-License-Identifier: Apache-2.0
// Losses and accuracies for people.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace starling {

// "0.4127": with so many digits after the point, at least two. A loss may be as large as a double
// can be; from 10,000 on it stays short: "1.95e+05".
inline std::string decimal(double value, int digits = 4) {
  return std::abs(value) < 1e4 ? fmt::format("{:.{}f}", value, digits)
                               : fmt::format("{:.{}e}", value, digits - 2);
}

}  // namespace starling
