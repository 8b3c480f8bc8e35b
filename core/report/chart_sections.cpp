// SPDX-License-Identifier: Apache-2.0
#include "core/report/chart_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace starling::report {
namespace {

constexpr std::size_t kMetricChartsMax = 32;

bool varies(const Run& run, Measure measure) {
  const std::vector<double> values = run.column(measure);
  return std::ranges::any_of(
      values, [&](double value) { return std::isfinite(value) && value != values.front(); });
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
    add_section(sections, progress_title(runs, progress), std::move(charts));
  }
  add_metrics(sections, runs);
  const auto is_gossip = [](const Run& run) { return run.kind == RunKind::kGossip; };
  if (std::ranges::any_of(runs.runs, is_gossip)) {
    add_section(sections, "Agreement of the nodes", {consensus_chart(runs), spread_chart(runs)});
  }
  if (std::ranges::any_of(runs.runs,
                          [](const Run& run) { return varies(run, Measure::kNodesUp); })) {
    add_section(sections, "Nodes present", {nodes_up_chart(runs)});
  }
  return sections;
}

}  // namespace starling::report
