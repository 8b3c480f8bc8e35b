// SPDX-License-Identifier: Apache-2.0
// All charts of a report, in the order in which the page shows them.
#pragma once

#include <string>
#include <vector>

#include "core/report/run_charts.h"

namespace starling::report {

struct ChartSection {
  std::string title;
  std::string introduction;   // a sentence; may be empty
  std::vector<Chart> charts;  // each has a series
};

std::vector<ChartSection> chart_sections(const Runs& runs);

}  // namespace starling::report
