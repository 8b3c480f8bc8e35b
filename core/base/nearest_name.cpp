// SPDX-License-Identifier: Apache-2.0
#include "core/base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace starling {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, 256);
  b = b.substr(0, 256);
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> before(width), above(width), row(width);  // rows i-2, i-1, i
  for (std::size_t j = 0; j < width; ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known) {
  std::string_view nearest;
  std::size_t distance_min = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (std::string_view name : known) {
    const std::size_t distance = edit_distance(word, name);
    if (distance >= distance_min) continue;
    distance_min = distance;
    nearest = name;
  }
  return nearest;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view nearest = nearest_name(word, known);
  return nearest.empty() ? std::string() : "; did you mean '" + std::string(nearest) + "'?";
}

std::string join_names(std::span<const std::string_view> names, std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " " + std::string(last) + " " : ", ";
    text += names[i];
  }
  return text;
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  const std::size_t size = text.size();
  // Never within a character of UTF-8, for then the rest of a message is no text any more.
  const auto continues = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80;
  };
  while (bytes_max > 0 && bytes_max < size && continues(bytes_max)) --bytes_max;
  std::string line(text.substr(0, bytes_max));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return size > bytes_max ? line + "..." : line;
}

}  // namespace starling
