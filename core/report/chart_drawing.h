// SPDX-License-Identifier: Apache-2.0
// The drawing within a chart, at one size: axes, bands, lines, marks and what a pointer is told.
#pragma once

#include <string>

#include "core/report/chart.h"

namespace starling::report {

// In SVG's user units, which are pixels where the drawing is shown at its own size.
struct DrawingSize {
  const char* css_class;
  double width;
  double height;
  int x_ticks_max;
  int y_ticks_max;
  bool labels;  // at the ends of lines, where they fit; and what a pointer is told
};

inline constexpr DrawingSize kWide = {"wide", 580, 320, 8, 7, true};
inline constexpr DrawingSize kNarrow = {"narrow", 340, 260, 5, 6, false};
inline constexpr DrawingSize kPanel = {"panel", 370, 240, 5, 6, false};
inline constexpr DrawingSize kFigure = {"figure", 580, 340, 8, 7, false};

struct Drawing {
  std::string svg;
  bool labelled = false;  // the lines bear their names, so that a legend is not needed
};

// Requires: every series has a point that can be shown.
Drawing draw(const Chart& chart, const DrawingSize& size);

// A whole SVG document at kFigure: the title above the drawing, the legend below it. Requires: as
// draw().
std::string draw_figure(const Chart& chart);

}  // namespace starling::report
