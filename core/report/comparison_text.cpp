// SPDX-License-Identifier: Apache-2.0
#include "core/report/comparison_text.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "core/base/escape_controls.h"
#include "core/report/comparison.h"
#include "core/report/seed_groups.h"
#include "core/telemetry/text_table.h"

namespace starling::report {

namespace {

constexpr std::size_t kKeyColumnsMax = 4;
constexpr std::size_t kWithoutTerminal = 80;  // columns, where headers make it wider

// What stands first in each row: the settings that differ, in a column each, or a name.
struct Leading {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
};

Leading leading_columns(std::span<const Run> runs, std::span<const std::string> names) {
  Leading leading{{"run"}, {}};
  for (const std::string& name : names) leading.rows.push_back({name});
  Differences apart = differences(runs);
  if (apart.keys.size() < 2 || apart.keys.size() > kKeyColumnsMax) return leading;
  const std::set<std::vector<std::string>> distinct(apart.values.begin(), apart.values.end());
  if (distinct.size() < runs.size()) return leading;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (std::string& value : apart.values[i]) value = value.empty() ? "–" : value;
    apart.values[i].back() += end_mark(runs[i]);
  }
  leading.titles = column_titles(apart.keys);
  leading.rows = std::move(apart.values);
  return leading;
}

}  // namespace

std::string comparison_text(std::span<const Run> runs, std::size_t columns) {
  const SeedGroups groups = make_seed_groups(runs);
  const std::span<const SeedRange> ranges =
      groups.several() ? std::span<const SeedRange>(groups.ranges) : std::span<const SeedRange>();
  const std::vector<std::string> names = distinguishing_names(groups.means);
  const Comparison comparison = compare(groups.means, names, ranges);
  const Leading leading = leading_columns(groups.means, names);
  std::vector<std::string> headers = leading.titles;
  for (const ComparisonColumn& column : std::span(comparison.columns).subspan(1)) {
    headers.push_back((column.number ? ">" : "") + column.title);
  }
  for (std::string& header : headers) {
    std::ranges::transform(header, header.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  }
  telemetry::TextTable table(std::move(headers), leading.titles.size());
  for (std::size_t i = 0; i < comparison.rows.size(); ++i) {
    std::vector<std::string> cells = leading.rows[i];
    cells.insert(cells.end(), comparison.rows[i].begin() + 1, comparison.rows[i].end());
    for (std::string& cell : cells) cell = escape_controls(cell);
    table.add(std::move(cells));
  }
  return columns == SIZE_MAX ? table.text_in_whole_rows(kWithoutTerminal) : table.text(columns);
}

}  // namespace starling::report
