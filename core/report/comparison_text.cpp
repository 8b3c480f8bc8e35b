// SPDX-License-Identifier: Apache-2.0
#include "core/report/comparison_text.h"

#include <algorithm>
#include <cctype>

#include "core/base/escape_controls.h"
#include "core/report/comparison.h"
#include "core/report/seed_groups.h"
#include "core/telemetry/text_table.h"

namespace starling::report {

std::string comparison_text(std::span<const Run> runs, std::size_t columns) {
  const SeedGroups groups = make_seed_groups(runs);
  const std::span<const SeedRange> ranges =
      groups.several() ? std::span<const SeedRange>(groups.ranges) : std::span<const SeedRange>();
  const Comparison comparison = compare(groups.means, distinguishing_names(groups.means), ranges);
  std::vector<std::string> headers;
  for (const ComparisonColumn& column : comparison.columns) {
    std::string title = (column.number ? ">" : "") + column.title;
    std::ranges::transform(title, title.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    headers.push_back(std::move(title));
  }
  telemetry::TextTable table(std::move(headers));
  for (const std::vector<std::string>& row : comparison.rows) {
    std::vector<std::string> cells;
    for (const std::string& cell : row) cells.push_back(escape_controls(cell));
    table.add(std::move(cells));
  }
  return table.text(columns);
}

}  // namespace starling::report
