// SPDX-License-Identifier: Apache-2.0
#include "core/report/chart.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "tests/report/xml_check.h"

namespace starling::report {
namespace {

using starling::testing::count_of;
using starling::testing::find_fault;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Series line_of(std::string name, std::vector<double> y, int style = 0) {
  Series series{.name = std::move(name), .y = std::move(y), .style = style};
  for (std::size_t i = 0; i < series.y.size(); ++i) series.x.push_back(static_cast<double>(i));
  return series;
}

Chart chart_of(std::vector<Series> series) {
  return {.title = "T", .x = {.title = "step"}, .y = {.title = "y"}, .series = std::move(series)};
}

// The path data of the first measured line of the wide drawing.
std::string first_line(const std::string& figure) {
  const std::string head = "class=\"line\" d=\"M";
  const std::size_t at = figure.find(head, figure.find("plot wide"));
  if (at == figure.npos) return {};
  const std::size_t begin = at + head.size() - 1;
  return figure.substr(begin, figure.find('"', begin) - begin);
}

TEST(Chart, IsDrawnForLaptopsAndPhones) {
  const std::string figure = render(chart_of({line_of("a", {1, 2, 3})}));
  EXPECT_EQ(find_fault(figure), "");
  EXPECT_THAT(figure, HasSubstr("plot wide"));
  EXPECT_THAT(figure, HasSubstr("plot narrow"));
  EXPECT_EQ(count_of(figure, "role=\"img\""), 2U);
}

// The labels below the wide drawing.
std::string column_labels(const Chart& chart) {
  const std::string figure = render(chart);
  const std::string wide = figure.substr(0, figure.find("plot narrow"));
  std::string labels;
  for (std::size_t at = wide.find("text-anchor=\"middle\""); at != wide.npos;
       at = wide.find("text-anchor=\"middle\"", at + 1)) {
    const std::size_t begin = wide.find('>', at) + 1;
    labels += (labels.empty() ? "" : " ") + wide.substr(begin, wide.find('<', begin) - begin);
  }
  return labels;
}

TEST(Chart, RoundsAreLabelledByWholeNumbers) {
  Chart chart = chart_of({line_of("a", {1, 2, 3})});
  EXPECT_THAT(column_labels(chart), HasSubstr("0.5"));
  chart.x.whole = true;
  EXPECT_EQ(column_labels(chart), "0 1 2");
  chart.series[0].x = {1};
  chart.series[0].y = {0.5};
  EXPECT_EQ(column_labels(chart), "1") << "of a run of one round";
  chart.series[0].x = {7};
  EXPECT_EQ(column_labels(chart), "7");
}

TEST(Chart, GapsAreNotJoined) {
  const std::string data =
      first_line(render(chart_of({line_of("a", {1, 2, kNan, 4, 5, kNan, 7})})));
  EXPECT_EQ(count_of(data, "M"), 3U) << data;
  EXPECT_EQ(count_of(data, "L"), 2U) << data;
  EXPECT_EQ(count_of(data, "h0"), 1U) << data;
}

TEST(Chart, WhatIsNotFiniteIsLeftOut) {
  const double infinity = std::numeric_limits<double>::infinity();
  Chart chart = chart_of({line_of("a", {infinity, 1, -infinity, 0, -1, 2})});
  chart.y.logarithmic = true;
  const std::string figure = render(chart);
  EXPECT_THAT(figure, Not(HasSubstr("inf")));
  EXPECT_THAT(figure, Not(HasSubstr("nan")));
  EXPECT_EQ(count_of(first_line(figure), "M"), 2U);
}

TEST(Chart, SaysWhereNothingWasMeasured) {
  EXPECT_THAT(render(chart_of({})), HasSubstr("Nothing was measured"));
  EXPECT_THAT(render(chart_of({line_of("a", {kNan, kNan})})), HasSubstr("Nothing was measured"));
}

TEST(Chart, FewSeriesBearTheirNamesAtTheirEnds) {
  const std::string apart = render(chart_of({line_of("low", {1, 2}), line_of("high", {1, 9}, 1)}));
  EXPECT_THAT(apart, HasSubstr(">low</text>"));
  EXPECT_THAT(apart, HasSubstr("class=\"legend narrow\""));
  // Ends at the same place: the names would not stand by their lines.
  const std::string together = render(chart_of({line_of("a", {1, 2}), line_of("b", {2, 2}, 1),
                                                line_of("c", {3, 2}, 2), line_of("d", {4, 2}, 3)}));
  EXPECT_THAT(together, Not(HasSubstr(">a</text>")));
  EXPECT_THAT(together, HasSubstr("class=\"legend\""));
}

TEST(Chart, APredictionDoesNotSetTheScaleAndEndsAtItsEdge) {
  Series predicted = line_of("theory", {5, 1e-30}, 1);
  predicted.line = Line::kPredicted;
  Chart chart = chart_of({line_of("measured", {5, 1}), predicted});
  chart.y.logarithmic = true;
  const std::string figure = render(chart);
  EXPECT_EQ(find_fault(figure), "");
  EXPECT_THAT(figure, Not(HasSubstr("1e-")));
  EXPECT_THAT(figure, HasSubstr("line predicted"));
}

TEST(Chart, WhatIsOutsideTheLimitsIsCut) {
  Series line = line_of("a", {0, 0.8, 0.81, 0.82, 0.9});
  line.lower = {0, 0.7, 0.8, 0.81, 0.9};
  line.upper = {0, 0.9, 0.82, 0.83, 0.9};
  Chart chart = chart_of({line});
  chart.y.limits = {.low = 0.8, .high = 0.9};
  const std::string figure = render(chart);
  EXPECT_THAT(figure, HasSubstr(">0.80</text>"));
  EXPECT_THAT(figure, Not(HasSubstr(">0.00</text>")));
  const std::string wide = figure.substr(0, figure.find("plot narrow"));
  EXPECT_EQ(count_of(wide, "class=\"mark\""), 4U + 1) << "and that of the legend";
  EXPECT_EQ(count_of(wide, "class=\"hint\""), 4U);
  const std::size_t band = wide.find("class=\"band\" d=\"");
  std::istringstream points(wide.substr(band + 17, wide.find('z', band) - band - 17));
  for (char command = 0; points >> command;) {
    double x = 0;
    double y = 0;
    points >> x >> y;
    EXPECT_GE(y, 26);
    EXPECT_LE(y, 276) << "the bottom of the drawing";
  }
}

TEST(Chart, ABandIsOneShapeForEachStretch) {
  Series series = line_of("a", {1, 2, kNan, 3, 4});
  series.lower = {0, 1, kNan, 2, 3};
  series.upper = {2, 3, kNan, 4, 5};
  const std::string figure = render(chart_of({series}));
  const std::size_t at = figure.find("class=\"band\"");
  ASSERT_NE(at, figure.npos);
  const std::string band = figure.substr(at, figure.find("/>", at) - at);
  EXPECT_EQ(count_of(band, "M"), 2U);
  EXPECT_EQ(count_of(band, "z"), 2U);
}

TEST(Chart, ABandOfManyPointsHasBothEdgesAtTheSamePlaces) {
  Series series = line_of("a", std::vector<double>(6000, 1.0));
  for (std::size_t i = 0; i < series.y.size(); ++i) {
    series.lower.push_back(i % 7 == 0 ? 0.5 : 0.9);
    series.upper.push_back(2.0 + static_cast<double>(i));
  }
  const std::string figure = render(chart_of({series}));
  const std::size_t at = figure.find("d=\"M", figure.find("class=\"band\""));
  const std::size_t end = figure.find('z', at);
  ASSERT_NE(end, figure.npos);
  std::vector<std::string> across;
  std::istringstream points(figure.substr(at + 4, end - at - 4));
  for (std::string point; std::getline(points, point, 'L');) {
    across.push_back(point.substr(0, point.find(' ')));
  }
  EXPECT_LT(across.size(), 4000U);
  EXPECT_TRUE(std::equal(across.begin(), across.end(), across.rbegin()));
}

}  // namespace
}  // namespace starling::report
