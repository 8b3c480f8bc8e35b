// SPDX-License-Identifier: Apache-2.0
#include "core/report/polyline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace starling::report {
namespace {

TEST(Thinned, KeepsEndsAndExtremesOfEachColumn) {
  std::vector<Point> points;
  for (int i = 0; i < 10000; ++i) points.push_back({i / 100.0, std::sin(i * 0.7)});
  points[4321].y = 50;
  const std::vector<Point> kept = thinned(points, 2000);
  EXPECT_LE(kept.size(), 400U);
  EXPECT_EQ(kept.front().x, points.front().x);
  EXPECT_EQ(kept.back().x, points.back().x);
  EXPECT_TRUE(std::ranges::any_of(kept, [](const Point& p) { return p.y == 50; }));
  EXPECT_TRUE(std::ranges::is_sorted(kept, {}, &Point::x));
  EXPECT_EQ(thinned(points, 10000).size(), 10000U);
}

TEST(Thinned, KeepsGapsThatCanBeSeen) {
  std::vector<Point> points;
  for (int i = 0; i < 5000; ++i) {
    const bool missing = i >= 2000 && i < 3000;
    points.push_back(missing ? kGap : Point{i / 100.0, 1});
  }
  points[100] = kGap;  // within a column
  const auto gaps =
      std::ranges::count_if(thinned(points, 100), [](const Point& p) { return std::isnan(p.x); });
  EXPECT_EQ(gaps, 1);
}

TEST(Clipped, EndsWhereALineLeaves) {
  // From below, above and through, a gap, and along the edges.
  const std::vector<Point> line = {{0, 30}, {1, 10}, {2, 0}, {3, 5},      {4, 25},
                                   {5, -5}, kGap,    {6, 5}, {7, 20.001}, {8, 0}};
  EXPECT_EQ(path_data(clipped(line, 0, 20)),
            "M0.5 20L1 10L2 0L3 5L3.8 20M4.2 20L4.8 0M6 5L7 20L8 0");
}

TEST(Clipped, CutsAShapeAtBothEdges) {
  const std::vector<Point> ring = {{0, 30}, {2, -10}, {4, 10}};
  const std::vector<Point> inside = clipped_ring(ring, 0, 20);
  for (const Point& point : inside) {
    EXPECT_GE(point.y, 0);
    EXPECT_LE(point.y, 20);
  }
  EXPECT_EQ(path_data(inside), "M0.5 20L1.5 0L3 0L4 10L2 20");
  EXPECT_TRUE(clipped_ring(ring, 40, 50).empty());
}

}  // namespace
}  // namespace starling::report
