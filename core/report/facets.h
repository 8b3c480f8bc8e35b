// SPDX-License-Identifier: Apache-2.0
// Many runs in several small charts: lines that share some settings stand in one panel, and one
// colour means the same in all of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/report/chart.h"
#include "core/report/run.h"

namespace starling::report {

inline constexpr std::size_t kLinesMax = 8;       // of one chart for all
inline constexpr std::size_t kPanelLinesMax = 6;  // of a panel: no two of one colour

struct Facet {
  std::string title;               // what its runs share, or the first and last of them
  std::vector<std::size_t> runs;   // indices
  std::vector<std::string> names;  // [runs] in this panel
  std::vector<int> styles;         // [runs]
};

// None where one chart can show all. `names`: of the runs, all different.
std::vector<Facet> make_facets(std::span<const Run> runs, std::span<const std::string> names);

// `whole` holds the series of all runs, each with its run's index as its style. Panels without a
// series are left out; all have the same axes.
struct FacetPanel {
  std::size_t facet = 0;
  Chart chart;
};
std::vector<FacetPanel> make_panels(const Chart& whole, std::span<const Facet> facets);

}  // namespace starling::report
