// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/text_table.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "core/base/word_wrap.h"

namespace starling::telemetry {
namespace {

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    longest = std::max(longest, columns_of(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

}  // namespace

TextTable::TextTable(std::vector<std::string> headers, std::size_t leading)
    : leading_(leading), headers_(std::move(headers)) {
  STARLING_CHECK(leading_ > 0 && leading_ <= headers_.size());
  for (std::string& header : headers_) {
    right_.push_back(header.starts_with('>'));
    if (right_.back()) header.erase(0, 1);
  }
}

void TextTable::add(std::vector<std::string> cells) {
  STARLING_CHECK(cells.size() == headers_.size());
  rows_.push_back(std::move(cells));
}

std::size_t TextTable::Layout::total() const {
  return std::accumulate(widths.begin(), widths.end(), gap * (widths.size() - 1));
}

// Of the cells of a column, without its header.
std::size_t TextTable::widest(std::size_t column, std::size_t (*width)(std::string_view)) const {
  std::size_t widest = 0;
  for (const Cells& cells : rows_) widest = std::max(widest, width(cells[column]));
  return widest;
}

TextTable::Layout TextTable::fit(std::size_t columns, Rows rows) const {
  Layout layout;
  std::vector<std::size_t> least;
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    layout.widths.push_back(std::max(columns_of(headers_[i]), widest(i, columns_of)));
  }
  if (layout.total() <= columns) return layout;
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    const std::size_t header = longest_word(headers_[i]);
    layout.widths[i] = std::max(header, widest(i, columns_of));
    least.push_back(right_[i] ? layout.widths[i] : std::max(header, widest(i, longest_word)));
  }
  if (rows == Rows::kWhole) return layout;
  if (layout.total() > columns) layout.gap = 1;
  while (layout.total() > columns) {
    std::size_t roomiest = 0;
    for (std::size_t i = 1; i < headers_.size(); ++i) {
      if (layout.widths[i] - least[i] > layout.widths[roomiest] - least[roomiest]) roomiest = i;
    }
    if (layout.widths[roomiest] == least[roomiest]) break;
    --layout.widths[roomiest];
  }
  return layout;
}

std::vector<std::vector<std::size_t>> TextTable::divide(const Layout& layout,
                                                        std::size_t columns) const {
  std::vector<std::size_t> leading(leading_);
  std::iota(leading.begin(), leading.end(), std::size_t{0});
  std::size_t least = layout.gap * (leading_ - 1);
  for (const std::size_t i : leading) least += layout.widths[i];
  std::vector<std::vector<std::size_t>> tables = {leading};
  std::size_t used = least;
  for (std::size_t i = leading_; i < headers_.size(); ++i) {
    if (used + layout.gap + layout.widths[i] > columns && tables.back().size() > leading_) {
      tables.push_back(leading);
      used = least;
    }
    tables.back().push_back(i);
    used += layout.gap + layout.widths[i];
  }
  return tables;
}

std::string TextTable::row(const Cells& cells, const Layout& layout,
                           const std::vector<std::size_t>& shown) const {
  std::vector<std::vector<std::string>> broken;
  std::size_t height = 0;
  for (const std::size_t i : shown) {
    broken.push_back(break_at_blanks(cells[i], layout.widths[i]));
    height = std::max(height, broken.back().size());
  }
  std::string text;
  for (std::size_t y = 0; y < height; ++y) {
    std::string line;
    for (std::size_t x = 0; x < shown.size(); ++x) {
      if (x > 0) line.append(layout.gap, ' ');
      const std::string part = y < broken[x].size() ? broken[x][y] : std::string();
      const std::string blanks(layout.widths[shown[x]] - columns_of(part), ' ');
      line += right_[shown[x]] ? blanks + part : part + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string TextTable::text(std::size_t columns, Rows rows) const {
  const Layout layout = fit(columns, rows);
  std::string text;
  for (const auto& shown : divide(layout, rows == Rows::kWhole ? SIZE_MAX : columns)) {
    if (!text.empty()) text += '\n';
    text += row(headers_, layout, shown);
    for (const Cells& cells : rows_) text += row(cells, layout, shown);
  }
  return text;
}

}  // namespace starling::telemetry
