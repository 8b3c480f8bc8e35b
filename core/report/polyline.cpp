// SPDX-License-Identifier: Apache-2.0
#include "core/report/polyline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/report/markup.h"

namespace starling::report {

bool is_gap(const Point& point) { return !std::isfinite(point.x); }

namespace {

constexpr double kSlack = 0.01;  // rounding alone must not take an edge's own points away

Point crossing(const Point& a, const Point& b, double y) {
  return {a.x + (b.x - a.x) * (y - a.y) / (b.y - a.y), y};
}

}  // namespace

std::vector<Point> clipped(const std::vector<Point>& points, double top, double bottom) {
  std::vector<Point> inside;
  const auto side = [&](const Point& p) {
    return p.y < top - kSlack ? -1 : p.y > bottom + kSlack ? 1 : 0;
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool joined = i > 0 && !is_gap(points[i]) && !is_gap(points[i - 1]);
    const int from = joined ? side(points[i - 1]) : 0;
    const int to = joined ? side(points[i]) : 0;
    if (from != to && from != 0) {
      inside.push_back(crossing(points[i - 1], points[i], from < 0 ? top : bottom));
    }
    if (from != to && to != 0) {
      inside.push_back(crossing(points[i - 1], points[i], to < 0 ? top : bottom));
    }
    inside.push_back(!is_gap(points[i]) && side(points[i]) == 0 ? points[i] : kGap);
  }
  return inside;
}

std::vector<Point> clipped_ring(std::vector<Point> ring, double top, double bottom) {
  for (const bool above : {true, false}) {
    const double edge = above ? top : bottom;
    const auto within = [&](const Point& p) { return above ? p.y >= edge : p.y <= edge; };
    std::vector<Point> kept;
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const Point& a = ring[i];
      const Point& b = ring[(i + 1) % ring.size()];
      if (within(a)) kept.push_back(a);
      if (within(a) != within(b)) kept.push_back(crossing(a, b, edge));
    }
    ring = std::move(kept);
  }
  return ring;
}

std::vector<Point> thinned(std::vector<Point> points, std::size_t points_max) {
  if (points.size() <= points_max) return points;
  std::vector<Point> kept;
  std::size_t begin = 0;
  const auto column = [&](std::size_t i) { return std::floor(points[i].x); };
  while (begin < points.size()) {
    if (is_gap(points[begin])) {
      std::size_t end = begin;
      while (end < points.size() && is_gap(points[end])) ++end;
      // A gap within a column, or at its edge, cannot be seen.
      const bool seen = kept.empty() || end == points.size() || is_gap(kept.back()) ||
                        column(end) > std::floor(kept.back().x) + 1;
      if (seen) kept.push_back(kGap);
      begin = end;
      continue;
    }
    std::size_t end = begin;
    std::size_t low = begin;
    std::size_t high = begin;
    for (; end < points.size() && !is_gap(points[end]) && column(end) == column(begin); ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    std::vector<std::size_t> wanted = {begin, std::min(low, high), std::max(low, high), end - 1};
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    for (const std::size_t i : wanted) kept.push_back(points[i]);
    begin = end;
  }
  return kept;
}

std::string path_data(const std::vector<Point>& points) {
  std::string data;
  bool joined = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (is_gap(points[i])) {
      joined = false;
      continue;
    }
    data += fmt::format("{}{} {}", joined ? 'L' : 'M', units(points[i].x), units(points[i].y));
    const bool alone = !joined && (i + 1 == points.size() || is_gap(points[i + 1]));
    if (alone) data += "h0";  // a dot, by the round ends of lines
    joined = true;
  }
  return data;
}

std::vector<std::size_t> chosen(const std::vector<Point>& points, std::size_t count_max,
                                std::size_t phase) {
  std::vector<std::size_t> known;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!is_gap(points[i])) known.push_back(i);
  }
  if (known.size() <= count_max) return known;
  std::vector<std::size_t> picked;
  for (std::size_t k = 0; k + 1 < count_max; ++k) {
    const std::size_t at = (4 * k + phase % 4) * known.size() / (4 * count_max);
    picked.push_back(known[at]);
  }
  picked.push_back(known.back());
  return picked;
}

}  // namespace starling::report
