// SPDX-License-Identifier: Apache-2.0
// Numbers of things in sentences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace starling {

// "1 round", "3 rounds". `noun`: in the singular, with a regular plural.
inline std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace starling
