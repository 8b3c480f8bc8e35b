// SPDX-License-Identifier: Apache-2.0
// What a program printed, without the line ends of a terminal's width.
#pragma once

#include <sstream>
#include <string>

namespace starling::testing {

inline std::string in_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

}  // namespace starling::testing
