// SPDX-License-Identifier: Apache-2.0
// Which charts a report has: measures of one run, or one measure of several runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/report/chart.h"
#include "core/report/run.h"

namespace starling::report {

// What the horizontal axis of a chart is.
enum class Progress { kSteps, kTime, kBytes };

// The runs, with their names, that a page is about.
struct Runs {
  std::span<const Run> runs;
  std::span<const std::string> names;
  // [runs] or empty: the ends of the band around each (SeedGroups); without evaluations: no band.
  std::span<const Run> lowest = {};
  std::span<const Run> highest = {};
};

bool has_progress(const Runs& runs, Progress progress);
// "Against virtual time"; of real processes "Against time", of both "Against virtual or wall time".
std::string progress_title(const Runs& runs, Progress progress);

// What accuracy and loss of several runs are: "mean over nodes"; empty where each has one model.
std::string mean_of_nodes(const Runs& runs);

// Of one run: nodes' mean and the mean model, or the model on the coordinator's data and on what
// clients held out. Of several: the nodes' mean of each.
Chart accuracy_chart(const Runs& runs, Progress progress);
// Of one run: training and evaluation. Of several: evaluation.
Chart loss_chart(const Runs& runs, Progress progress);
// Of several runs: evaluation by clients.
Chart held_out_accuracy_chart(const Runs& runs, Progress progress);
Chart held_out_loss_chart(const Runs& runs, Progress progress);
// A custom trainer's metrics against rounds or steps, a chart each. Of one run: a line for each
// source (coordinator, clients, training). Of several runs: a chart for each source.
std::vector<Chart> metric_charts(const Runs& runs);
// With the rate at which the topology alone would shrink it.
Chart consensus_chart(const Runs& runs);
// Of one run: best, mean and worst node. Of several: best less worst.
Chart spread_chart(const Runs& runs);
Chart nodes_up_chart(const Runs& runs);

// The distance that a topology with the second largest modulus `slem` leaves of `distance` at
// `step`: one mixing every `local_steps` steps, each of which shrinks it by slem at least.
struct Contraction {
  double slem = 1;
  double local_steps = 1;
  double distance_after(double distance, double steps) const;
};

}  // namespace starling::report
