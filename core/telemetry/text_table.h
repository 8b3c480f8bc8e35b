// SPDX-License-Identifier: Apache-2.0
// Facts for people in a terminal: aligned columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace starling::telemetry {

class TextTable {
 public:
  // A header that begins with '>' is of a column of numbers, which are aligned on the right.
  explicit TextTable(std::vector<std::string> headers);

  // Requires: a cell for each header.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

// The text with control bytes as '?', so that names of others cannot steer a terminal.
std::string on_one_line(std::string_view text);

}  // namespace starling::telemetry
