// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <string>

namespace starling {

// "cam-1, cam-2 and 7 more": the first `most` items in the words of `describe`, the rest counted.
template <std::ranges::random_access_range Items, typename Describe>
std::string list_some(const Items& items, std::size_t most, Describe describe) {
  const std::size_t count = std::ranges::size(items);
  std::string text;
  for (std::size_t i = 0; i < std::min(count, most); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", describe(items[i]));
  }
  if (count > most) text += fmt::format(" and {} more", count - most);
  return text;
}

}  // namespace starling
