// SPDX-License-Identifier: Apache-2.0
#include "core/report/chart_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace starling::report {
namespace {

constexpr std::size_t kMetricChartsMax = 32;

bool varies(const Run& run, Measure measure) {
  const std::vector<double> values = run.column(measure);
  return std::ranges::any_of(
      values, [&](double value) { return std::isfinite(value) && value != values.front(); });
}

// The least and the greatest value of all lines and bands; `later`: without their first quarters.
std::optional<Limits> limits_of(const Chart& chart, bool later) {
  constexpr std::size_t kParts = 4;
  std::optional<Limits> limits;
  for (const Series& series : chart.series) {
    for (const auto* values : {&series.y, &series.lower, &series.upper}) {
      for (std::size_t i = later ? values->size() / kParts : 0; i < values->size(); ++i) {
        const double value = (*values)[i];
        if (!std::isfinite(value)) continue;
        if (!limits) limits = Limits{value, value};
        limits->low = std::min(limits->low, value);
        limits->high = std::max(limits->high, value);
      }
    }
  }
  return limits;
}

// Models that have hardly been trained are far from what they become: where their values would
// take most of the height, runs that differ by a point would be one line.
void leave_out_beginnings(Chart& chart) {
  const auto all = limits_of(chart, false);
  const auto later = limits_of(chart, true);
  if (!later || 2 * (later->high - later->low) > all->high - all->low) return;
  if (!(all->low < all->high)) return;
  // Else the smallest changes of a flat line would fill the height.
  const double least = (all->high - all->low) / 10;
  chart.y.limits = {.low = std::max(all->low, std::min(later->low, later->high - least)),
                    .high = std::min(all->high, std::max(later->high, later->low + least))};
  chart.note += fmt::format("{}Some first values are outside the vertical axis.",
                            chart.note.empty() ? "" : " ");
}

void add_section(std::vector<ChartSection>& sections, std::string title,
                 std::vector<Chart> charts) {
  std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
  if (!charts.empty()) sections.push_back({std::move(title), "", std::move(charts)});
}

// A custom trainer's, whose names it chose.
void add_metrics(std::vector<ChartSection>& sections, const Runs& runs) {
  std::vector<Chart> charts = metric_charts(runs);
  if (charts.empty()) return;
  std::string introduction = "As the trainer names them.";
  if (charts.size() > kMetricChartsMax) {
    introduction +=
        fmt::format(" The first {} of {}; {} all.", kMetricChartsMax, charts.size(),
                    runs.runs.size() == 1 ? "the numbers below have" : "the runs' own files have");
    charts.resize(kMetricChartsMax);
  }
  std::ranges::for_each(charts, leave_out_beginnings);
  sections.push_back({"Metrics of the trainer", std::move(introduction), std::move(charts)});
}

}  // namespace

std::vector<ChartSection> chart_sections(const Runs& runs) {
  std::vector<ChartSection> sections;
  for (const Progress progress : {Progress::kSteps, Progress::kTime, Progress::kBytes}) {
    if (!has_progress(runs, progress)) continue;
    std::vector<Chart> charts = {accuracy_chart(runs, progress), loss_chart(runs, progress)};
    if (runs.runs.size() > 1) {
      charts.push_back(held_out_accuracy_chart(runs, progress));
      charts.push_back(held_out_loss_chart(runs, progress));
    }
    std::ranges::for_each(charts, leave_out_beginnings);
    add_section(sections, progress_title(runs, progress), std::move(charts));
  }
  add_metrics(sections, runs);
  const auto is_gossip = [](const Run& run) { return run.kind == RunKind::kGossip; };
  if (std::ranges::any_of(runs.runs, is_gossip)) {
    Chart spread = spread_chart(runs);
    leave_out_beginnings(spread);
    add_section(sections, "Agreement of the nodes", {consensus_chart(runs), std::move(spread)});
  }
  if (std::ranges::any_of(runs.runs,
                          [](const Run& run) { return varies(run, Measure::kNodesUp); })) {
    add_section(sections, "Nodes present", {nodes_up_chart(runs)});
  }
  return sections;
}

}  // namespace starling::report
