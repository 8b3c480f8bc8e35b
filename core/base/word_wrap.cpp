// SPDX-License-Identifier: Apache-2.0
#include "core/base/word_wrap.h"

#include <algorithm>

namespace starling {

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string> break_at_blanks(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::size_t blanks = std::min(text.find_first_not_of(' '), text.size());
    const std::string_view next = text.substr(0, text.find(' ', blanks));  // a word and its blanks
    std::string& line = lines.back();
    if (line.empty() || columns_of(line) + columns_of(next) <= columns) {
      line += next;
    } else if (next.size() > blanks) {
      lines.emplace_back(next.substr(blanks));
    }
    text.remove_prefix(next.size());
  }
  return lines;
}

std::string wrap(std::string_view text, std::size_t columns, std::size_t taken) {
  constexpr std::string_view kIndent = "  ";
  const std::string whole = std::string(taken, '.') + std::string(text);
  std::string lines = break_at_blanks(whole, columns).front().substr(taken);
  text.remove_prefix(lines.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  if (text.empty()) return lines;
  for (const std::string& line : break_at_blanks(text, columns - kIndent.size())) {
    lines.append("\n").append(kIndent).append(line);
  }
  return lines;
}

std::string wrap_beside(std::string_view label, std::string_view text, std::size_t columns) {
  const std::size_t taken = columns_of(label);
  std::string lines(label);
  for (const std::string& line : break_at_blanks(text, columns > taken ? columns - taken : 1)) {
    if (lines.size() > label.size()) lines.append("\n").append(taken, ' ');
    lines += line;
  }
  return lines;
}

}  // namespace starling
