// SPDX-License-Identifier: Apache-2.0
#include "core/report/chart_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/word_wrap.h"
#include "core/report/chart_style.h"
#include "core/report/markup.h"
#include "core/report/page_style.h"
#include "core/report/palette.h"
#include "core/report/polyline.h"

namespace starling::report {
namespace {

constexpr double kMissing = kGap.x;
constexpr double kCharacter = 6.6;  // mean width at the 12 px of the page's style
constexpr double kBold = 1.12;      // as wide again for names at the ends of lines
constexpr double kLineHeight = 15;
constexpr std::size_t kPointsMax = 2000;
constexpr std::size_t kMarksMax = 9;
constexpr std::size_t kHintsMax = 120;
constexpr std::size_t kLabelledMax = 4;
constexpr std::size_t kLabelCharacters = 18;

struct Frame {
  Scale x;
  Scale y;
  DisplayUnit x_unit;
  DisplayUnit y_unit;
  double left = 0;
  double right = 0;
  double top = 0;
  double bottom = 0;

  // Not finite where the value cannot be shown.
  double across(double value) const {
    return left + (right - left) * x.share(value / x_unit.size).value_or(kMissing);
  }
  double down(double value) const {
    return bottom - (bottom - top) * y.share(value / y_unit.size).value_or(kMissing);
  }
  // Of a point that is no gap: whether it is no higher and no lower.
  bool shows(const Point& point) const { return point.y >= top - 1 && point.y <= bottom + 1; }
};

double text_width(std::string_view text) {
  return kCharacter * static_cast<double>(columns_of(text));
}

// Of the measured series: what theory says must not set the scale.
std::vector<double> values_of(const Chart& chart, bool x_axis) {
  std::vector<double> values;
  const auto add = [&](const std::vector<double>& more) {
    values.insert(values.end(), more.begin(), more.end());
  };
  const bool all_predicted = std::ranges::all_of(
      chart.series, [](const Series& series) { return series.line == Line::kPredicted; });
  for (const Series& series : chart.series) {
    if (series.line == Line::kPredicted && !all_predicted) continue;
    add(x_axis ? series.x : series.y);
    if (x_axis) continue;
    add(series.lower);
    add(series.upper);
  }
  add(x_axis ? chart.x.reaches : chart.y.reaches);
  return values;
}

struct FittedAxis {
  Scale scale;  // in the display unit
  DisplayUnit unit;
};

// `is_y`: the ends are widened to ticks.
FittedAxis fit(const Chart& chart, bool is_y, int ticks_max) {
  const Axis& axis = is_y ? chart.y : chart.x;
  std::vector<double> values = axis.limits
                                   ? std::vector<double>{axis.limits->low, axis.limits->high}
                                   : values_of(chart, !is_y);
  double high = 0;
  for (const double value : values) {
    if (std::isfinite(value)) high = std::max(high, std::abs(value));
  }
  const DisplayUnit unit = display_unit(axis.quantity, high);
  for (double& value : values) value /= unit.size;
  const auto scale = fit_scale(values, axis.logarithmic, is_y, ticks_max);
  return {scale.value_or(Scale(0.5, 1.5, axis.logarithmic)), unit};
}

std::vector<std::string> tick_labels(const Scale& scale, const std::vector<double>& ticks) {
  const bool powers = scale.logarithmic() && ticks.size() > 1 && ticks[1] / ticks[0] > 1.9;
  const double step = powers || ticks.size() < 2 ? 0 : ticks[1] - ticks[0];
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(tick_label(tick, step));
  return labels;
}

std::string axis_title(const Axis& axis, const DisplayUnit& unit) {
  std::string title = axis.title;
  if (!unit.name.empty()) title += fmt::format(" ({})", unit.name);
  if (axis.logarithmic) title += ", log scale";
  return title;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view css_class,
                    std::string_view text) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                     units(x), units(y), anchor, css_class, escape(text));
}

std::string axes(const Chart& chart, const Frame& frame, const DrawingSize& size) {
  std::string text;
  std::string grid;
  const std::vector<double> rows = frame.y.ticks(size.y_ticks_max);
  const std::vector<std::string> row_labels = tick_labels(frame.y, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = frame.down(rows[i] * frame.y_unit.size);
    grid += fmt::format("M{} {}H{}", units(frame.left), units(y), units(frame.right));
    text += text_at(frame.left - 7, y + 4, "end", "tick", row_labels[i]);
  }
  std::string base =
      fmt::format("M{} {}H{}", units(frame.left), units(frame.bottom), units(frame.right));
  std::vector<double> columns = frame.x.ticks(size.x_ticks_max);
  if (chart.x.whole && frame.x_unit.size == 1) {
    std::erase_if(columns, [](double at) { return std::abs(at - std::rint(at)) > 1e-6; });
  }
  const std::vector<std::string> labels = tick_labels(frame.x, columns);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const double x = frame.across(columns[i] * frame.x_unit.size);
    base += fmt::format("M{} {}v4", units(x), units(frame.bottom));
    const double half = text_width(labels[i]) / 2;
    text += text_at(std::min(x, size.width - half), frame.bottom + 18, "middle", "tick", labels[i]);
  }
  text += text_at(frame.right, frame.bottom + 37, "end", "axis", axis_title(chart.x, frame.x_unit));
  text += text_at(0, 12, "start", "axis", axis_title(chart.y, frame.y_unit));
  return fmt::format("<path class=\"grid\" d=\"{}\"/>\n<path class=\"base\" d=\"{}\"/>\n{}", grid,
                     base, text);
}

std::vector<Point> points_of(const Series& series, const std::vector<double>& y,
                             const Frame& frame) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const Point point{frame.across(series.x[i]), frame.down(y[i])};
    points.push_back(std::isfinite(point.x) && std::isfinite(point.y) ? point : kGap);
  }
  return points;
}

struct Edges {
  std::vector<Point> lower, upper;  // at the same x, with the same gaps
};

// Of more points than can be shown, the outermost of each column of width 1.
Edges edges_of(const Series& series, const Frame& frame) {
  const std::vector<Point> lower = points_of(series, series.lower, frame);
  const std::vector<Point> upper = points_of(series, series.upper, frame);
  const std::size_t count = std::min(lower.size(), upper.size());
  Edges edges;
  for (std::size_t i = 0; i < count; ++i) {
    const bool gap = is_gap(lower[i]) || is_gap(upper[i]);
    const bool same_column = count > kPointsMax && !gap && !edges.lower.empty() &&
                             std::floor(edges.lower.back().x) == std::floor(lower[i].x);
    if (same_column) {  // y grows downwards
      edges.lower.back().y = std::max(edges.lower.back().y, lower[i].y);
      edges.upper.back().y = std::min(edges.upper.back().y, upper[i].y);
      continue;
    }
    edges.lower.push_back(gap ? kGap : lower[i]);
    edges.upper.push_back(gap ? kGap : upper[i]);
  }
  return edges;
}

// One closed shape for each stretch where both edges are known.
std::string band(const Series& series, const Frame& frame) {
  const auto [lower, upper] = edges_of(series, frame);
  std::string data;
  std::size_t begin = 0;
  const std::size_t count = lower.size();
  const auto close = [&](std::size_t end) {
    std::vector<Point> ring;
    for (std::size_t i = begin; i < end; ++i) ring.push_back(upper[i]);
    for (std::size_t i = end; i > begin; --i) ring.push_back(lower[i - 1]);
    ring = clipped_ring(std::move(ring), frame.top, frame.bottom);
    for (std::size_t i = 0; i < ring.size(); ++i) {
      data += fmt::format("{}{} {}", i == 0 ? 'M' : 'L', units(ring[i].x), units(ring[i].y));
    }
    if (!ring.empty()) data += 'z';
    begin = end + 1;
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (is_gap(lower[i]) || is_gap(upper[i])) close(i);
  }
  close(count);
  return fmt::format("<path class=\"band\" d=\"{}\"/>\n", data);
}

std::string marks(const Series& series, const std::vector<Point>& points) {
  std::string text;
  const auto phase = static_cast<std::size_t>(series.style);
  for (const std::size_t i : chosen(points, kMarksMax, phase)) {
    text += mark(series.style, points[i].x, points[i].y);
  }
  return text + '\n';
}

std::string hints(const Chart& chart, const Series& series, const std::vector<Point>& points) {
  std::string text;
  for (const std::size_t i : chosen(points, kHintsMax, 0)) {
    const std::string values =
        fmt::format("{} {}, {} {}", chart.x.title, format_value(chart.x.quantity, series.x[i]),
                    chart.y.title, format_value(chart.y.quantity, series.y[i]));
    const std::string who = series.name.empty() ? "" : series.name + ": ";
    text += fmt::format(
        "<circle class=\"hint\" cx=\"{}\" cy=\"{}\" r=\"7\"><title>{}</title>"
        "</circle>\n",
        units(points[i].x), units(points[i].y), escape(who + values));
  }
  return text;
}

std::string line(const Series& series, const std::vector<Point>& points) {
  const bool measured = series.line == Line::kMeasured;
  const std::string pattern = measured ? dashes(series.style) : "1 4";
  return fmt::format("<path class=\"{}\"{} d=\"{}\"/>\n", measured ? "line" : "line predicted",
                     pattern.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", pattern),
                     path_data(thinned(points, kPointsMax)));
}

std::string drawn(const Chart& chart, const Series& series, const Frame& frame,
                  const DrawingSize& size) {
  std::vector<Point> points = points_of(series, series.y, frame);
  std::string text = fmt::format("<g class=\"{}\">\n", colour_class(series.style));
  if (!series.lower.empty()) text += band(series, frame);
  text += line(series, clipped(points, frame.top, frame.bottom));
  if (series.line == Line::kMeasured) {
    std::ranges::replace_if(
        points, [&](const Point& point) { return !frame.shows(point); }, kGap);
    text += marks(series, points);
    if (size.labels) text += hints(chart, series, points);
  }
  return text + "</g>\n";
}

struct EndLabel {
  const Series* series;
  Point end;
  double y;  // of the label
};

// Names at the lines' ends, moved apart where they would touch; nothing where they would end up
// far from their lines, or a line ends early.
std::optional<std::vector<EndLabel>> end_labels(const Chart& chart, const Frame& frame) {
  std::vector<EndLabel> labels;
  for (const Series& series : chart.series) {
    if (series.name.empty()) continue;
    const std::vector<Point> points = points_of(series, series.y, frame);
    const auto last = std::find_if(points.rbegin(), points.rend(),
                                   [](const Point& point) { return !is_gap(point); });
    if (last == points.rend() || last->x < frame.right - 0.03 * (frame.right - frame.left) ||
        !frame.shows(*last)) {
      return std::nullopt;
    }
    labels.push_back({&series, *last, last->y});
  }
  std::ranges::sort(labels, {}, &EndLabel::y);
  constexpr int kSweeps = 50;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t i = 1; i < labels.size(); ++i) {
      const double overlap = labels[i - 1].y + kLineHeight - labels[i].y;
      if (overlap <= 0) continue;
      labels[i - 1].y -= overlap / 2;
      labels[i].y += overlap / 2;
    }
  }
  for (const EndLabel& label : labels) {
    if (std::abs(label.y - label.end.y) > kLineHeight) return std::nullopt;
  }
  return labels;
}

// The room at the right that the names need; 0 where they are too many or too long.
double label_room(const Chart& chart, const DrawingSize& size) {
  if (!size.labels || chart.series.size() > kLabelledMax) return 0;
  double room = 0;
  for (const Series& series : chart.series) {
    if (columns_of(series.name) > kLabelCharacters) return 0;
    room = std::max(room, kBold * text_width(series.name));
  }
  return room > 0 ? room + 12 : 0;
}

Frame frame_of(const Chart& chart, const DrawingSize& size, double room) {
  const FittedAxis x = fit(chart, false, size.x_ticks_max);
  const FittedAxis y = fit(chart, true, size.y_ticks_max);
  double widest = 0;
  for (const std::string& label : tick_labels(y.scale, y.scale.ticks(size.y_ticks_max))) {
    widest = std::max(widest, text_width(label));
  }
  return {.x = x.scale,
          .y = y.scale,
          .x_unit = x.unit,
          .y_unit = y.unit,
          .left = widest + 10,
          .right = size.width - std::max(room, 12.0),
          .top = 26,
          .bottom = size.height - 44};
}

std::string description(const Chart& chart) {
  std::string names;
  for (const Series& series : chart.series) {
    if (series.name.empty()) continue;
    names += (names.empty() ? ": " : ", ") + series.name;
  }
  return fmt::format("Line chart of {} against {}{}", chart.y.title, chart.x.title, names);
}

// `labelled`: whether the lines bear their names.
std::string draw_body(const Chart& chart, const DrawingSize& size, bool& labelled) {
  Frame frame = frame_of(chart, size, label_room(chart, size));
  std::optional<std::vector<EndLabel>> labels;
  if (label_room(chart, size) > 0) labels = end_labels(chart, frame);
  if (!labels) frame = frame_of(chart, size, 0);
  labelled = labels.has_value();
  std::string body = axes(chart, frame, size);
  for (const Series& series : chart.series) body += drawn(chart, series, frame, size);
  if (!labels) return body;
  for (const EndLabel& label : *labels) {
    body += fmt::format("<g class=\"{}\">{}</g>\n", colour_class(label.series->style),
                        text_at(frame.right + 9, label.y + 4, "start", "end", label.series->name));
  }
  return body;
}

struct FigureLegend {
  std::string svg;  // from (0, 0)
  double height = 0;
};

// Names one after the other, in as many rows as they need.
FigureLegend figure_legend(const Chart& chart, double width) {
  constexpr double kSwatch = 30;
  constexpr double kGapBetween = 18;
  constexpr double kRow = 18;
  FigureLegend legend;
  double x = 0;
  double y = kRow / 2;
  // What theory says of several runs has one entry: the colours are those of the runs.
  bool predicted = false;
  for (const Series& series : chart.series) {
    const bool unnamed = series.name.empty();
    if (unnamed && (series.line != Line::kPredicted || std::exchange(predicted, true))) continue;
    const std::string name = unnamed ? "dotted: mixing alone (λ^t)" : series.name;
    const double needed = kSwatch + text_width(name);
    if (x > 0 && x + needed > width) {
      x = 0;
      y += kRow;
    }
    legend.svg += fmt::format(
        "<g class=\"{}\">{}{}</g>\n{}", colour_class(series.style),
        line(series, {{x, y}, {x + kSwatch - 6, y}}),
        series.line == Line::kMeasured ? mark(series.style, x + kSwatch / 2 - 3, y) : "",
        text_at(x + kSwatch, y + 4, "start", "name", name));
    x += needed + kGapBetween;
    legend.height = y + kRow / 2;
  }
  return legend;
}

}  // namespace

Drawing draw(const Chart& chart, const DrawingSize& size) {
  Drawing drawing;
  const std::string body = draw_body(chart, size, drawing.labelled);
  drawing.svg = fmt::format(
      "<svg class=\"plot {}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n"
      "<title>{}</title><desc>{}</desc>\n{}</svg>\n",
      size.css_class, units(size.width), units(size.height), escape(chart.title),
      escape(chart.title), escape(description(chart)), body);
  return drawing;
}

std::string draw_figure(const Chart& chart) {
  constexpr double kMargin = 12;
  constexpr double kTitle = 24;
  bool labelled = false;
  const std::string body = draw_body(chart, kFigure, labelled);
  const FigureLegend legend = figure_legend(chart, kFigure.width);
  const double width = kFigure.width + 2 * kMargin;
  const double legend_top = kMargin + kTitle + kFigure.height + 8;
  const double height = legend_top + legend.height + kMargin;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n<title>{2}</title><desc>{3}</desc>\n<style>\n{4}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"{5}\"/>\n"
      "<text class=\"title\" x=\"{6}\" y=\"{7}\">{2}</text>\n"
      "<g transform=\"translate({6} {8})\">\n{9}</g>\n"
      "<g transform=\"translate({6} {10})\">\n{11}</g>\n</svg>\n",
      units(width), units(height), escape(chart.title), escape(description(chart)), figure_style(),
      kLight.page, units(kMargin), units(kMargin + 12), units(kMargin + kTitle), body,
      units(legend_top), legend.svg);
}

}  // namespace starling::report
