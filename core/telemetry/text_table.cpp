// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/text_table.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/telemetry/terminal.h"

namespace starling::telemetry {

TextTable::TextTable(std::vector<std::string> headers) : headers_(std::move(headers)) {
  for (std::string& header : headers_) {
    right_.push_back(header.starts_with('>'));
    if (right_.back()) header.erase(0, 1);
  }
}

void TextTable::add(std::vector<std::string> cells) {
  STARLING_CHECK(cells.size() == headers_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths(headers_.size(), 0);
  const auto widen = [&widths](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(row[i]));
  };
  widen(headers_);
  std::ranges::for_each(rows_, widen);
  std::string text;
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      const std::string blanks(widths[i] - columns_of(row[i]), ' ');
      line += right_[i] ? blanks + row[i] : row[i] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  print(headers_);
  std::ranges::for_each(rows_, print);
  return text;
}

std::string on_one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return line;
}

}  // namespace starling::telemetry
