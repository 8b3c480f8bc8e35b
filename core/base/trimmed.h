// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace starling {

// Without the spaces and tabs around it.
inline std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace starling
