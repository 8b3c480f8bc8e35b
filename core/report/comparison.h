// SPDX-License-Identifier: Apache-2.0
// Runs beside each other: what to call them, the accuracy that all of them reached, and what it
// cost each to get there.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/report/run.h"

namespace starling::report {

// Behind the name of a run that did not end as it should: " (unfinished)", " (failed)",
// " (incomplete)".
std::string end_mark(const Run& run);

// The settings in which runs of one kind differ, most telling first; among them "runs as":
// simulated, simulated peers (--real-protocol) or real processes.
struct Differences {
  std::vector<std::string> keys;
  // [run][key]; "" where the run has no such key. Paths are without the directory that all share.
  std::vector<std::vector<std::string>> values;
};
// None of runs of both kinds, or of jobs of several names.
Differences differences(std::span<const Run> runs);

// Of runs of any kinds and jobs, to be told rather than to name them. Where there are both kinds:
// what differs within one, what both have and differs, and which algorithm, topology, strategy and
// number of clients only one kind has.
// Paths are whole.
Differences all_differences(std::span<const Run> runs);

// Settings as titles of columns, all different: "learning rate", "algorithm momentum".
std::vector<std::string> column_titles(std::span<const std::string> keys);

// The words of a name for some of the keys of a run: "ring, local-steps 8".
std::string words_of(std::span<const std::string> keys, std::span<const std::string> values);

// A name for each run, all different: the most telling settings in which the runs of its kind
// differ and those that are needed besides ("ring", "torus:4x4, local-steps 8"), else the name of
// the job or directory.
std::vector<std::string> distinguishing_names(std::span<const Run> runs);

// The accuracy that stands for a run in comparisons: the mean over its nodes.
std::optional<double> best_accuracy(const Run& run);

// The highest multiple of 0.05 that every run with accuracies reached (of 0.01 below 0.05).
std::optional<double> common_target(std::span<const Run> runs);

// What a run needed until its accuracy was first at least `target`, as measured, not interpolated.
struct Cost {
  double step = kNotMeasured;
  double virtual_seconds = kNotMeasured;
  double bytes = kNotMeasured;
};
std::optional<Cost> cost_of(const Run& run, double target);

struct ComparisonColumn {
  std::string title;
  bool number = true;
};
// A row a run; cells as people read them, "–" for what is missing.
struct Comparison {
  std::optional<double> target;
  std::vector<ComparisonColumn> columns;
  std::vector<std::vector<std::string>> rows;
};
// Of a run that stands for several seeds: their own runs, and of their final accuracies the mean,
// the lowest and the highest. Seeds may end at different steps.
struct SeedRange {
  std::vector<const Run*> seeds;  // as given to make_seed_groups()
  std::optional<double> mean, lowest, highest;
};
// The mean of the seeds' own values; none where a seed has none.
std::optional<double> mean_best_accuracy(const SeedRange& range);
std::optional<Cost> mean_cost_of(const SeedRange& range, double target);

// Columns without a value in any row are left out. `ranges`: one for each run, or none.
Comparison compare(std::span<const Run> runs, std::span<const std::string> names,
                   std::span<const SeedRange> ranges = {});

// Whether there are simulated runs and real processes: times are virtual and wall time.
bool have_both_times(std::span<const Run> runs);

// Bytes a node where every run says how many it had, else of all nodes together.
bool bytes_by_node(std::span<const Run> runs);

}  // namespace starling::report
