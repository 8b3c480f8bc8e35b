// SPDX-License-Identifier: Apache-2.0
// What the members of the all-reduce tests hold: whole numbers whose sums stay whole in a float.
#pragma once

#include <cstdint>

namespace starling::testing {

// From -1000 to 1000.
inline int reduced_number(std::uint32_t member, std::uint64_t place) {
  const std::uint64_t mixed = (place * 31 + (member + 1) * 1009) * 0x9E3779B97F4A7C15U;
  return static_cast<int>((mixed >> 32) % 2001) - 1000;
}

}  // namespace starling::testing
