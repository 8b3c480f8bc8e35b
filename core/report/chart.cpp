// SPDX-License-Identifier: Apache-2.0
#include "core/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/report/chart_drawing.h"
#include "core/report/chart_style.h"
#include "core/report/markup.h"

namespace starling::report {
namespace {

bool can_be_shown(const Axis& axis, double value) {
  return std::isfinite(value) && (!axis.logarithmic || (value > 0 && value >= axis.floor));
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

std::string legend(std::span<const Series> series, std::string_view css_classes) {
  std::string items;
  for (const Series& one : series) {
    if (one.name.empty()) continue;
    items += fmt::format("<li>{}<span>{}</span></li>", swatch(one.style, one.line),
                         escape_name(one.name));
  }
  if (items.empty()) return {};
  return fmt::format("<ul class=\"{}\">{}</ul>\n", css_classes, items);
}

// Only what can be drawn.
Chart visible_part(const Chart& chart) {
  Chart shown = chart;
  std::ranges::for_each(shown.series, check_shape);
  std::erase_if(shown.series, [&](const Series& series) { return !is_visible(chart, series); });
  if (chart.y.floor <= 0) return shown;
  for (Series& series : shown.series) {
    if (series.line == Line::kPredicted) continue;  // is cut where it leaves the axis
    for (auto* values : {&series.y, &series.lower, &series.upper}) {
      std::ranges::replace_if(
          *values, [&](double value) { return value < chart.y.floor; },
          std::numeric_limits<double>::quiet_NaN());
    }
  }
  return shown;
}

std::string figure_of(const std::string& caption, const std::string& body) {
  return fmt::format("<figure class=\"chart\">\n<figcaption>{}</figcaption>\n{}</figure>\n",
                     caption, body);
}

constexpr const char* kNothing = "<p class=\"empty\">Nothing was measured.</p>\n";

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

std::string legend_of(std::span<const Series> series) { return legend(series, "legend"); }

std::string render(const Chart& chart) {
  const Chart shown = visible_part(chart);
  if (shown.series.empty()) return figure_of(escape(chart.title), kNothing);
  const Drawing wide = draw(shown, kWide);
  const Drawing narrow = draw(shown, kNarrow);
  std::string body = legend(shown.series, wide.labelled ? "legend narrow" : "legend");
  body += wide.svg + narrow.svg;
  if (!chart.note.empty()) body += fmt::format("<p class=\"note\">{}</p>\n", escape(chart.note));
  return figure_of(escape(chart.title), body);
}

std::string render_panel(const Chart& chart, bool with_legend) {
  const Chart shown = visible_part(chart);
  const std::string caption = escape_name(chart.title);
  if (shown.series.empty()) return figure_of(caption, kNothing);
  return figure_of(caption, (with_legend ? legend_of(shown.series) : "") + draw(shown, kPanel).svg);
}

bool shows_something(const Chart& chart) {
  return std::ranges::any_of(chart.series,
                             [&](const Series& series) { return is_visible(chart, series); });
}

std::string standalone_svg(const Chart& chart) {
  const Chart shown = visible_part(chart);
  STARLING_CHECK(!shown.series.empty());
  return draw_figure(shown);
}

}  // namespace starling::report
