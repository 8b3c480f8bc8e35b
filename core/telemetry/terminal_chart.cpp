// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/terminal_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/base/check.h"

namespace starling::telemetry {
namespace {

struct Point {
  double x;
  double y;
};

// Dots on a grid of characters, each kDotsX by kDotsY of them (1 by 1 without Unicode).
class Canvas {
 public:
  Canvas(std::size_t columns, std::size_t rows, bool unicode)
      : columns_(columns), rows_(rows), unicode_(unicode), cells_(columns * rows) {}

  std::size_t width() const { return columns_ * (unicode_ ? 2 : 1); }
  std::size_t height() const { return rows_ * (unicode_ ? 4 : 1); }

  // y counts from the bottom.
  void set(std::size_t x, std::size_t y) {
    // Braille patterns, U+2800 + bits: dots 1 2 3 7 down the left, 4 5 6 8 down the right.
    static constexpr std::array<std::array<std::uint8_t, 4>, 2> kBits = {
        {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    const std::size_t down = height() - 1 - y;
    if (unicode_) {
      cells_[down / 4 * columns_ + x / 2] |= kBits[x % 2][down % 4];
    } else {
      cells_[down * columns_ + x] = 1;
    }
  }

  std::string row(std::size_t row) const {
    std::string text;
    for (std::size_t column = 0; column < columns_; ++column) {
      const std::uint8_t cell = cells_[row * columns_ + column];
      if (cell == 0) {
        text += ' ';
      } else if (unicode_) {
        text += '\xE2';
        text += static_cast<char>(0xA0 | cell >> 6);
        text += static_cast<char>(0x80 | (cell & 0x3F));
      } else {
        text += '*';
      }
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

 private:
  std::size_t columns_;
  std::size_t rows_;
  bool unicode_;
  std::vector<std::uint8_t> cells_;
};

struct Range {
  double low;
  double high;

  double share(double y) const { return high > low ? (y - low) / (high - low) : 0.5; }
};

std::vector<double> positions(std::span<const double> values, const ChartOptions& options) {
  if (!options.at.empty()) return options.at;
  std::vector<double> xs(values.size());
  std::iota(xs.begin(), xs.end(), 1.0);
  return xs;
}

std::vector<Point> finite_points(std::span<const double> xs, std::span<const double> values) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) points.push_back({xs[i], values[i]});
  }
  return points;
}

std::size_t scaled(double share, std::size_t size) {
  return static_cast<std::size_t>(std::lround(share * static_cast<double>(size - 1)));
}

// Joins neighbours by straight lines, without gaps where they are steep.
void draw(Canvas& canvas, const std::vector<Point>& points, const Range& across,
          const Range& range) {
  const auto column = [&](double x) {
    return scaled(across.high > across.low ? across.share(x) : 0, canvas.width());
  };
  const auto level = [&](double y) { return scaled(range.share(y), canvas.height()); };
  canvas.set(column(points[0].x), level(points[0].y));
  for (std::size_t i = 1; i < points.size(); ++i) {
    const std::size_t from = column(points[i - 1].x);
    const std::size_t to = column(points[i].x);
    std::size_t before = level(points[i - 1].y);
    for (std::size_t x = from; x <= to; ++x) {
      const double t =
          to > from ? static_cast<double>(x - from) / static_cast<double>(to - from) : 1;
      const std::size_t here = level(points[i - 1].y + t * (points[i].y - points[i - 1].y));
      canvas.set(x, here);
      for (std::size_t y = std::min(before, here) + 1; y < std::max(before, here); ++y) {
        canvas.set(x, y);
      }
      before = here;
    }
  }
}

// As many decimals as tell the labels of a range apart.
std::string label(double value, const Range& range) {
  const double span = range.high - range.low;
  const int decimals =
      span > 0 ? std::clamp(static_cast<int>(std::ceil(2 - std::log10(span))), 0, 9) : 4;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string caption(const std::vector<Point>& points, const ChartOptions& options) {
  const auto best = std::ranges::max_element(points, {}, &Point::y);
  const auto name = [&](const Point& point) {
    return fmt::format("{:.4f} at {} {:.0f}", point.y, options.x_label, point.x);
  };
  return fmt::format("{}: {}, highest {}\n", options.title, name(points.back()), name(*best));
}

}  // namespace

std::string line_chart(std::span<const double> values, const Terminal& terminal,
                       const ChartOptions& options) {
  STARLING_CHECK(options.at.empty() || options.at.size() == values.size());
  const std::vector<double> xs = positions(values, options);
  const std::vector<Point> points = finite_points(xs, values);
  if (points.empty()) return options.title + ": no values\n";
  const auto [lowest, highest] = std::ranges::minmax_element(points, {}, &Point::y);
  const Range range{lowest->y, highest->y};
  const auto rows = static_cast<std::size_t>(std::clamp(options.rows, 2, 100));
  const std::string top = label(range.high, range);
  const std::string bottom = label(range.low, range);
  const std::size_t margin = std::max(top.size(), bottom.size());
  const auto columns_max = static_cast<std::size_t>(
      std::clamp(std::min(options.columns_max, terminal.columns), 20, 400));
  const std::size_t columns = columns_max - std::min(margin + 2, columns_max - 4);
  Canvas canvas(columns, rows, terminal.unicode);
  draw(canvas, points, {xs.front(), xs.back()}, range);

  std::string text = caption(points, options);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::string tick = row == 0 ? top : row + 1 == rows ? bottom : "";
    const std::string_view axis = !terminal.unicode ? "|" : tick.empty() ? "│" : "┤";
    const std::string curve = canvas.row(row);
    text += fmt::format("{:>{}} {}", tick, margin, axis);
    text += terminal.colour && !curve.empty() ? "\x1b[32m" + curve + "\x1b[0m" : curve;
    text += '\n';
  }
  const std::string first = fmt::format("{:.0f}", xs.front());
  const std::string last = fmt::format("{:.0f}", xs.back());
  text += std::string(margin + 1, ' ') + (terminal.unicode ? "└" : "+");
  for (std::size_t i = 0; i < columns; ++i) text += terminal.unicode ? "─" : "-";
  const std::size_t gap =
      columns > first.size() + last.size() ? columns - first.size() - last.size() : 1;
  return text + fmt::format("\n{}{}{}{}\n", std::string(margin + 2, ' '), first,
                            std::string(gap, ' '), values.size() > 1 ? last : "");
}

}  // namespace starling::telemetry
