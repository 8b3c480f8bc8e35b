// SPDX-License-Identifier: Apache-2.0
// A line chart as HTML and inline SVG. It is drawn twice, for laptops and for phones, and the
// page's style shows the one that fits: text stays readable at both widths without a script.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/report/scale.h"

namespace starling::report {

enum class Line {
  kMeasured,   // with marks
  kPredicted,  // thin and dotted, without marks: what a theory says, not what was measured
};

struct Series {
  std::string name;                // empty: not in the legend
  std::vector<double> x;           // not finite: missing, as in y
  std::vector<double> y;           // [x]; the line has a gap where values are missing
  std::vector<double> lower = {};  // [x] or empty: with `upper` a band behind the line
  std::vector<double> upper = {};
  int style = 0;  // >= 0: colour and mark
  Line line = Line::kMeasured;
};

struct Limits {
  double low = 0;
  double high = 0;
};

struct Axis {
  std::string title;  // without a unit, which is chosen to suit the values
  Quantity quantity = Quantity::kNumber;
  bool logarithmic = false;
  bool whole = false;                // it counts something: no labels between two whole numbers
  std::vector<double> reaches = {};  // values that it shows besides those of the series
  double floor = 0;                  // of a logarithmic axis: what is below is not drawn
  // It shows these, widened to ticks, in place of all values: lines and bands are cut where they
  // leave it.
  std::optional<Limits> limits = {};
};

struct Chart {
  std::string title;
  Axis x;
  Axis y;
  std::vector<Series> series;
  std::string note = {};  // a sentence below; may be empty
};

// A <figure>. Where nothing can be shown it says so instead of showing empty axes. What stands
// beyond 2,000 points is thinned to what a screen can show: the first, last, lowest and highest
// point of each column of pixels. A predicted line ends where it leaves the measured ones' range.
std::string render(const Chart& chart);

// The same as one small drawing for panels side by side, which may share one legend.
std::string render_panel(const Chart& chart, bool with_legend);

// The names and styles of these series as a list.
std::string legend_of(std::span<const Series> series);

// Whether any point of it can be drawn: a logarithmic axis has none of a line of zeros.
bool shows_something(const Chart& chart);
// A file for a paper: light, with its title, axes and legend, without scripts or anything outside
// it. Requires: something can be shown.
std::string standalone_svg(const Chart& chart);

// The colour class and mark of a style as a small SVG, for legends and tables.
std::string swatch(int style, Line line = Line::kMeasured);

}  // namespace starling::report
