// SPDX-License-Identifier: Apache-2.0
// Runs that differ only in their seed, as one: the mean of the seeds with the lowest and highest.
#pragma once

#include <span>
#include <vector>

#include "core/report/comparison.h"
#include "core/report/run.h"

namespace starling::report {

// The indices of the runs of each group, in the order of the groups' first runs. Runs of one group
// have one kind and the same told settings, but for the seed, which each has and which all differ.
// An unfinished run is a group of its own.
std::vector<std::vector<std::size_t>> group_by_seed(std::span<const Run> runs);

struct SeedGroups {
  std::vector<std::vector<std::size_t>> members;
  // A run for each group: of several seeds the mean, at the evaluations that all of them have, of
  // what all of them measured there.
  std::vector<Run> means;
  // The lowest and the highest value of each measure at these evaluations; without evaluations
  // where the group has one run.
  std::vector<Run> lowest, highest;
  std::vector<SeedRange> ranges;  // point to the runs that were given

  // Whether a group has several runs.
  bool several() const { return members.size() < runs; }
  std::size_t runs = 0;
};
SeedGroups make_seed_groups(std::span<const Run> runs);

}  // namespace starling::report
