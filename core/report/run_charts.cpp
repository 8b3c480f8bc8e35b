// SPDX-License-Identifier: Apache-2.0
#include "core/report/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/report/comparison.h"

namespace starling::report {
namespace {

bool is_mixed(const Runs& runs) {
  return std::ranges::any_of(runs.runs,
                             [&](const Run& run) { return run.kind != runs.runs.front().kind; });
}

bool any_has(const Runs& runs, Measure measure) {
  return std::ranges::any_of(runs.runs, [&](const Run& run) { return run.has(measure); });
}

// Virtual time where any run has it; runs without it are then not shown, for wall time is another
// thing.
Measure time_measure(const Runs& runs) {
  return any_has(runs, Measure::kVirtualSeconds) ? Measure::kVirtualSeconds : Measure::kWallSeconds;
}

Measure measure_of(const Runs& runs, Progress progress) {
  switch (progress) {
    case Progress::kTime:
      return time_measure(runs);
    case Progress::kBytes:
      return Measure::kBytesSent;
    case Progress::kSteps:
      break;
  }
  return Measure::kStep;
}

std::string steps_title(const Runs& runs) {
  if (is_mixed(runs)) return "step or round";
  return runs.runs.front().kind == RunKind::kGossip ? "step" : "round";
}

std::string time_title(const Runs& runs) {
  if (time_measure(runs) == Measure::kWallSeconds) return "wall time";
  if (have_both_times(runs.runs)) return "virtual or wall time";
  return runs.runs.front().real_time ? "time" : "virtual time";
}

Axis x_axis(const Runs& runs, Progress progress) {
  if (progress == Progress::kSteps) return {.title = steps_title(runs), .whole = true};
  const MeasureInfo& info = kMeasures[static_cast<std::size_t>(measure_of(runs, progress))];
  std::string title = progress == Progress::kTime ? time_title(runs) : std::string(info.title);
  if (progress == Progress::kBytes && bytes_by_node(runs.runs)) title += " a node";
  return {.title = std::move(title), .quantity = info.quantity};
}

std::string with_mean(std::string title, const Runs& runs) {
  const std::string mean = mean_of_nodes(runs);
  return mean.empty() ? title : title + ", " + mean;
}

std::vector<double> x_values(const Runs& runs, const Run& run, Progress progress) {
  std::vector<double> values = run.column(measure_of(runs, progress));
  if (progress == Progress::kBytes && bytes_by_node(runs.runs)) {
    for (double& value : values) value /= *run.nodes;
  }
  return values;
}

Chart empty_chart(const Runs& runs, Progress progress, std::string title, std::string y) {
  return {.title = std::move(title), .x = x_axis(runs, progress), .y = {.title = std::move(y)}};
}

// Rounds without an evaluation are no gap in the line of a federated run. `key`: a Measure or a
// MetricKey.
template <class Key>
void add(Chart& chart, const Runs& runs, std::size_t index, Progress progress, const Key& key,
         std::string name, int style) {
  const Run& run = runs.runs[index];
  const std::vector<double> y = run.column(key);
  if (std::ranges::none_of(y, [](double value) { return std::isfinite(value); })) return;
  Series series{.name = std::move(name), .style = style};
  const bool has_band = index < runs.lowest.size() && !runs.lowest[index].evaluations.empty();
  const std::vector<double> x = x_values(runs, run, progress);
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (run.kind == RunKind::kFederated && !std::isfinite(y[i])) continue;
    series.x.push_back(x[i]);
    series.y.push_back(y[i]);
    if (!has_band) continue;
    const Evaluation& lowest = runs.lowest[index].evaluations[i];
    const Evaluation& highest = runs.highest[index].evaluations[i];
    series.lower.push_back(lowest.at(key));
    series.upper.push_back(highest.at(key));
  }
  chart.series.push_back(std::move(series));
}

// One measure of every run.
void add_all(Chart& chart, const Runs& runs, Progress progress, Measure measure) {
  for (std::size_t i = 0; i < runs.runs.size(); ++i) {
    add(chart, runs, i, progress, measure, runs.names[i], static_cast<int>(i));
  }
}

// From the first distance that is above 0 on. A geometric sequence is straight on the logarithmic
// axis, so its two ends are enough.
void add_prediction(Chart& chart, const Run& run, const std::string& name, int style) {
  if (!run.topology || !run.topology->slem) return;
  const Contraction contraction{*run.topology->slem, run.local_steps()};
  if (!(contraction.slem > 0 && contraction.slem < 1)) return;
  const auto first = std::ranges::find_if(run.evaluations, [](const Evaluation& evaluation) {
    return evaluation.at(Measure::kConsensusDistance) > 0;
  });
  if (first == run.evaluations.end()) return;
  const double distance = first->at(Measure::kConsensusDistance);
  const double begin = first->at(Measure::kStep);
  const double end = run.evaluations.back().at(Measure::kStep);
  // Before the distance is less than the smallest double.
  const double steps_max =
      contraction.local_steps * std::log(1e-290 / distance) / std::log(contraction.slem);
  const double steps = std::min(end - begin, std::max(steps_max, 0.0));
  if (steps <= 0) return;
  chart.series.push_back({.name = name,
                          .x = {begin, begin + steps},
                          .y = {distance, contraction.distance_after(distance, steps)},
                          .style = style,
                          .line = Line::kPredicted});
}

// Far below the others' distances stand only those of models that rounding alone tells apart,
// unless the others' are those of a run that an attack or its rate has ruined.
void cut_rounding_errors(Chart& chart) {
  constexpr double kRounding = 1e-6;
  constexpr double kSound = 1;  // a distance of models whose values are of the usual size
  double high = 0;
  bool is_below = false;
  const auto each = [&](auto&& look_at) {
    for (const Series& series : chart.series) {
      for (const double value : series.y) {
        if (series.line == Line::kMeasured && value > 0) look_at(value);
      }
    }
  };
  each([&](double value) { high = std::max(high, value); });
  high = std::min(high, kSound);
  each([&](double value) { is_below = is_below || value < kRounding * high; });
  if (!is_below) return;
  chart.y.floor = kRounding * high;
  chart.note += fmt::format("{}Distances below {} are rounding errors and are not drawn.",
                            chart.note.empty() ? "" : " ", tick_label(chart.y.floor, 0));
}

std::string formula(const Run& run) {
  return run.local_steps() == 1 ? std::string("λ^t") : fmt::format("λ^(t/{:g})", run.local_steps());
}

}  // namespace

std::string mean_of_nodes(const Runs& runs) {
  if (is_mixed(runs)) return "mean over nodes (gossip runs)";
  return runs.runs.front().kind == RunKind::kGossip ? "mean over nodes" : "";
}

double Contraction::distance_after(double distance, double steps) const {
  return distance * std::pow(slem, steps / local_steps);
}

bool has_progress(const Runs& runs, Progress progress) {
  return any_has(runs, measure_of(runs, progress));
}

std::string progress_title(const Runs& runs, Progress progress) {
  switch (progress) {
    case Progress::kTime:
      return "Against " + time_title(runs);
    case Progress::kBytes:
      return "Against bytes sent";
    case Progress::kSteps:
      break;
  }
  return is_mixed(runs)                               ? "Against steps and rounds"
         : runs.runs.front().kind == RunKind::kGossip ? "Against steps"
                                                      : "Against rounds";
}

Chart accuracy_chart(const Runs& runs, Progress progress) {
  Chart chart = empty_chart(runs, progress, "Accuracy", "accuracy");
  if (runs.runs.size() > 1) {
    chart.title = with_mean("Accuracy", runs);
    add_all(chart, runs, progress, Measure::kEvalAccuracy);
    return chart;
  }
  const Run& run = runs.runs.front();
  const char* of_one_model = run.has(Measure::kHeldOutAccuracy) ? "eval" : "";
  add(chart, runs, 0, progress, Measure::kEvalAccuracy,
      run.kind == RunKind::kFederated ? of_one_model : "mean of nodes", 0);
  add(chart, runs, 0, progress, Measure::kEvalAccuracyMeanModel, "mean model", 1);
  add(chart, runs, 0, progress, Measure::kHeldOutAccuracy, "held-out", 1);
  return chart;
}

Chart loss_chart(const Runs& runs, Progress progress) {
  Chart chart = empty_chart(runs, progress, "Loss", "loss");
  if (runs.runs.size() > 1) {
    chart.title = with_mean("Evaluation loss", runs);
    add_all(chart, runs, progress, Measure::kEvalLoss);
    return chart;
  }
  const bool one_model = runs.runs.front().kind == RunKind::kFederated;
  add(chart, runs, 0, progress, Measure::kEvalLoss, one_model ? "eval" : "eval, nodes", 0);
  add(chart, runs, 0, progress, Measure::kEvalLossMeanModel, "eval, mean model", 1);
  add(chart, runs, 0, progress, Measure::kHeldOutLoss, "held-out", 1);
  add(chart, runs, 0, progress, Measure::kTrainLoss, "train", 2);
  return chart;
}

Chart held_out_accuracy_chart(const Runs& runs, Progress progress) {
  Chart chart = empty_chart(runs, progress, "Held-out accuracy", "accuracy");
  add_all(chart, runs, progress, Measure::kHeldOutAccuracy);
  return chart;
}

Chart held_out_loss_chart(const Runs& runs, Progress progress) {
  Chart chart = empty_chart(runs, progress, "Held-out loss", "loss");
  add_all(chart, runs, progress, Measure::kHeldOutLoss);
  return chart;
}

std::vector<Chart> metric_charts(const Runs& runs) {
  std::set<MetricKey> keys;
  for (const Run& run : runs.runs) {
    for (MetricKey& key : run.metrics()) keys.insert(std::move(key));
  }
  const bool one = runs.runs.size() == 1;
  std::vector<Chart> charts;
  for (const MetricKey& key : keys) {
    if (one) {
      if (charts.empty() || charts.back().title != key.name) {
        charts.push_back(empty_chart(runs, Progress::kSteps, key.name, key.name));
      }
      const auto source = static_cast<std::size_t>(key.source);
      const bool of_nodes = runs.runs.front().kind == RunKind::kGossip;
      add(charts.back(), runs, 0, Progress::kSteps, key,
          of_nodes ? "mean of nodes" : std::string(kSources[source].title),
          static_cast<int>(source));
      continue;
    }
    Chart chart = empty_chart(runs, Progress::kSteps, with_mean(key.title(), runs), key.name);
    for (std::size_t i = 0; i < runs.runs.size(); ++i) {
      add(chart, runs, i, Progress::kSteps, key, runs.names[i], static_cast<int>(i));
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

Chart consensus_chart(const Runs& runs) {
  Chart chart = empty_chart(runs, Progress::kSteps, "Consensus distance", "distance from the mean");
  chart.y.logarithmic = true;
  if (runs.runs.size() == 1) {
    const Run& run = runs.runs.front();
    add(chart, runs, 0, Progress::kSteps, Measure::kConsensusDistance, "measured", 0);
    add_prediction(chart, run, "rate of the topology alone, " + formula(run), 1);
  } else {
    add_all(chart, runs, Progress::kSteps, Measure::kConsensusDistance);
    for (std::size_t i = 0; i < runs.runs.size(); ++i) {
      add_prediction(chart, runs.runs[i], "", static_cast<int>(i));
    }
  }
  const bool predicted = std::ranges::any_of(
      chart.series, [](const Series& series) { return series.line == Line::kPredicted; });
  if (predicted) {
    chart.note =
        "Dotted: how fast mixing alone would bring the models together (λ^t, λ the topology's "
        "second "
        "largest eigenvalue modulus, one mixing a step or every H local steps). Training pulls "
        "them "
        "apart, so a run levels off above it.";
  }
  cut_rounding_errors(chart);
  return chart;
}

Chart spread_chart(const Runs& runs) {
  Chart chart = empty_chart(runs, Progress::kSteps, "Spread over nodes", "accuracy");
  if (runs.runs.size() == 1) {
    const Run& run = runs.runs.front();
    add(chart, runs, 0, Progress::kSteps, Measure::kEvalAccuracy, "mean, from worst to best node",
        0);
    if (!chart.series.empty() && run.has(Measure::kEvalAccuracyMin)) {
      chart.series.front().lower = run.column(Measure::kEvalAccuracyMin);
      chart.series.front().upper = run.column(Measure::kEvalAccuracyMax);
    }
    return chart;
  }
  chart.y.title = "accuracy of the best less the worst node";
  for (std::size_t i = 0; i < runs.runs.size(); ++i) {
    add(chart, runs, i, Progress::kSteps, Measure::kEvalAccuracyMax, runs.names[i],
        static_cast<int>(i));
    if (!runs.runs[i].has(Measure::kEvalAccuracyMax)) continue;
    const std::vector<double> worst = runs.runs[i].column(Measure::kEvalAccuracyMin);
    for (std::size_t k = 0; k < worst.size(); ++k) chart.series.back().y[k] -= worst[k];
    // The ends of the band are those of the best node, not of the difference.
    chart.series.back().lower.clear();
    chart.series.back().upper.clear();
  }
  return chart;
}

Chart nodes_up_chart(const Runs& runs) {
  Chart chart = empty_chart(runs, Progress::kSteps, "Nodes up", "nodes");
  if (runs.runs.size() == 1) {
    add(chart, runs, 0, Progress::kSteps, Measure::kNodesUp, "", 0);
  } else {
    add_all(chart, runs, Progress::kSteps, Measure::kNodesUp);
  }
  return chart;
}

}  // namespace starling::report
