// SPDX-License-Identifier: Apache-2.0
// The points of a line in a drawing, in SVG's user units: thinned to what a screen can show, as a
// path, and where its marks stand.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace starling::report {

struct Point {
  double x = 0;
  double y = 0;
};

// Stands where values are missing; the line is not joined across it.
inline constexpr Point kGap = {std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::quiet_NaN()};
bool is_gap(const Point& point);

// Where there are more than `points_max`: the first, last, lowest and highest point of each column
// of width 1, and the gaps that can be seen.
std::vector<Point> thinned(std::vector<Point> points, std::size_t points_max);

// The part of a line between two horizontal ones, `top` < `bottom`; cut where it crosses them.
std::vector<Point> clipped(const std::vector<Point>& points, double top, double bottom);
// The same of a closed shape without gaps (Sutherland and Hodgman 1974).
std::vector<Point> clipped_ring(std::vector<Point> ring, double top, double bottom);

// SVG's path data; a point alone is a dot, by the round ends of lines.
std::string path_data(const std::vector<Point>& points);

// At most `count_max` of the points, evenly, the last among them; `phase` shifts the choice so that
// marks of lines on top of each other stand apart.
std::vector<std::size_t> chosen(const std::vector<Point>& points, std::size_t count_max,
                                std::size_t phase);

}  // namespace starling::report
