// SPDX-License-Identifier: Apache-2.0
// Facts for people in a terminal: aligned columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace starling::telemetry {

class TextTable {
 public:
  // A header that begins with '>' is of a column of numbers, which are aligned on the right. The
  // first `leading` columns say what a row is about. Requires: as many headers, and at least one.
  explicit TextTable(std::vector<std::string> headers, std::size_t leading = 1);

  // Requires: a cell for each header.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // With lines of at most `columns`. What is wider is broken at blanks, first the headers, then the
  // cells of text; where that is not enough, the columns stand in several tables below each other,
  // each with the leading ones. Numbers and words are never broken.
  std::string text(std::size_t columns = SIZE_MAX) const { return text(columns, Rows::kBroken); }
  // For a file or a pipe: one line a row, of one table, however wide. Headers alone are broken,
  // where without that a line would have more than `columns`.
  std::string text_in_whole_rows(std::size_t columns) const { return text(columns, Rows::kWhole); }

 private:
  enum class Rows { kBroken, kWhole };
  using Cells = std::vector<std::string>;
  struct Layout {
    std::vector<std::size_t> widths;
    std::size_t gap = 2;

    std::size_t total() const;
  };

  std::string text(std::size_t columns, Rows rows) const;
  Layout fit(std::size_t columns, Rows rows) const;
  // The columns of each table.
  std::vector<std::vector<std::size_t>> divide(const Layout& layout, std::size_t columns) const;
  std::string row(const Cells& cells, const Layout& layout,
                  const std::vector<std::size_t>& shown) const;
  std::size_t widest(std::size_t column, std::size_t (*width)(std::string_view)) const;

  std::size_t leading_;
  std::vector<bool> right_;
  Cells headers_;
  std::vector<Cells> rows_;
};

}  // namespace starling::telemetry
