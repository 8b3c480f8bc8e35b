// SPDX-License-Identifier: Apache-2.0
// The curves of a report as files: CSV to plot elsewhere, SVG for papers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/report/run.h"

namespace starling::report {

struct CurveFile {
  std::string name;  // "accuracy-by-step.csv"
  std::string text;
};

// A table of each chart, a line a point: the curve's name, the settings that set its run apart, x
// and y, and, of several seeds, the lowest, the highest and how many. In seconds and bytes; numbers
// read back as the same bits; empty where nothing was measured.
std::vector<CurveFile> curves_as_csv(std::span<const Run> runs);

// A drawing of each chart, or of each panel of a chart that has several.
std::vector<CurveFile> curves_as_svg(std::span<const Run> runs);

}  // namespace starling::report
