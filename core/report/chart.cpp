// SPDX-License-Identifier: Apache-2.0
#include "core/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/report/chart_drawing.h"
#include "core/report/chart_style.h"
#include "core/report/markup.h"

namespace starling::report {
namespace {

bool can_be_shown(const Axis& axis, double value) {
  return std::isfinite(value) && (!axis.logarithmic || value > 0);
}

// Something of it can be drawn.
bool is_visible(const Chart& chart, const Series& series) {
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (can_be_shown(chart.x, series.x[i]) && can_be_shown(chart.y, series.y[i])) return true;
  }
  return false;
}

void check_shape(const Series& series) {
  STARLING_CHECK(series.x.size() == series.y.size() && series.style >= 0);
  STARLING_CHECK(series.lower.empty() || series.lower.size() == series.x.size());
  STARLING_CHECK(series.upper.size() == series.lower.size());
}

std::string legend(const Chart& chart, bool labelled_on_wide) {
  std::string items;
  for (const Series& series : chart.series) {
    if (series.name.empty()) continue;
    items += fmt::format("<li>{}{}</li>", swatch(series.style, series.line), escape(series.name));
  }
  if (items.empty()) return {};
  return fmt::format("<ul class=\"legend{}\">{}</ul>\n", labelled_on_wide ? " narrow" : "", items);
}

}  // namespace

std::string swatch(int style, Line line) {
  const bool measured = line == Line::kMeasured;
  const std::string pattern = measured ? dashes(style) : "1 4";
  return fmt::format(
      "<svg class=\"swatch {}\" viewBox=\"0 0 26 12\" width=\"26\" height=\"12\" "
      "aria-hidden=\"true\"><path class=\"{}\"{} d=\"M2 6h22\"/>{}</svg>",
      colour_class(style), measured ? "line" : "line predicted",
      pattern.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", pattern),
      measured ? mark(style, 13, 6) : "");
}

std::string render(const Chart& chart) {
  Chart shown = chart;
  std::ranges::for_each(shown.series, check_shape);
  std::erase_if(shown.series, [&](const Series& series) { return !is_visible(chart, series); });
  std::string text =
      fmt::format("<figure class=\"chart\">\n<figcaption>{}</figcaption>\n", escape(chart.title));
  if (shown.series.empty()) {
    return text + "<p class=\"empty\">Nothing was measured.</p>\n</figure>\n";
  }
  const Drawing wide = draw(shown, kWide);
  const Drawing narrow = draw(shown, kNarrow);
  text += legend(shown, wide.labelled) + wide.svg + narrow.svg;
  if (!chart.note.empty()) text += fmt::format("<p class=\"note\">{}</p>\n", escape(chart.note));
  return text + "</figure>\n";
}

}  // namespace starling::report
