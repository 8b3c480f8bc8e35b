// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/data/partition.h"

namespace starling::data {
namespace {

constexpr std::size_t kClassesShown = 20;

std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

PartitionSummary summarize(const RowLabels& labels,
                           const std::vector<std::vector<std::uint32_t>>& parts) {
  PartitionSummary summary;
  std::size_t used = 0;
  for (const auto& rows : parts) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(labels.classes));
    for (std::uint32_t row : rows) ++counts[static_cast<std::size_t>(labels.labels[row])];
    summary.histogram.push_back(std::move(counts));
    const bool first = summary.histogram.size() == 1;
    summary.rows_min = first ? rows.size() : std::min(summary.rows_min, rows.size());
    summary.rows_max = std::max(summary.rows_max, rows.size());
    used += rows.size();
  }
  if (!parts.empty())
    summary.rows_mean = static_cast<double>(used) / static_cast<double>(parts.size());
  summary.rows_unused = labels.labels.size() - used;
  return summary;
}

std::string to_text(const PartitionSummary& summary, std::size_t parts_shown) {
  const std::size_t parts = summary.histogram.size();
  const std::size_t classes = parts == 0 ? 0 : summary.histogram.front().size();
  const std::size_t shown = std::min(classes, kClassesShown);
  const std::size_t width =
      std::max<std::size_t>(3, fmt::formatted_size("{}", summary.rows_max)) + 1;
  std::string text = fmt::format("{:>6}{:>{}}  class", "part", "rows", width + 2);
  for (std::size_t c = 0; c < shown; ++c) text += fmt::format("{:>{}}", c, width);
  text += shown < classes ? fmt::format("  ... {} classes\n", classes) : "\n";
  for (std::size_t k = 0; k < std::min(parts, parts_shown); ++k) {
    text += fmt::format("{:>6}{:>{}}       ", k + 1, sum(summary.histogram[k]), width + 2);
    for (std::size_t c = 0; c < shown; ++c) {
      text += fmt::format("{:>{}}", summary.histogram[k][c], width);
    }
    text += '\n';
  }
  if (parts > parts_shown) text += fmt::format("{:>6} {} more parts\n", "...", parts - parts_shown);
  text += fmt::format("{} parts, rows a part: min {}, mean {:.1f}, max {}", parts, summary.rows_min,
                      summary.rows_mean, summary.rows_max);
  if (summary.rows_unused > 0) text += fmt::format("; {} rows unused", summary.rows_unused);
  return text + '\n';
}

}  // namespace starling::data
