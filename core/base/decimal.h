// SPDX-License-Identifier: Apache-2.0
// Losses and accuracies for people.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace starling {

// "0.4127": with so many digits after the point. A loss may be as large as a double can be; from a
// million on it stays short: "1.0000e+100".
inline std::string decimal(double value, int digits = 4) {
  return fmt::format(fmt::runtime(std::abs(value) < 1e6 ? "{:.{}f}" : "{:.{}e}"), value, digits);
}

}  // namespace starling
