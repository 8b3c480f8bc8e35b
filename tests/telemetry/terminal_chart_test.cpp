// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/terminal_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/word_wrap.h"

namespace starling::telemetry {
namespace {

using ::testing::HasSubstr;

constexpr Terminal kPlain{.interactive = false, .colour = false, .unicode = false, .columns = 80};
constexpr Terminal kUnicode{.interactive = true, .colour = false, .unicode = true, .columns = 80};
const ChartOptions kSmall{.title = "accuracy", .x_label = "round", .rows = 4, .columns_max = 22};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Columns 0 5 10 15 of 16 hold the values; between them the level is round(column / 5).
TEST(LineChart, IsReadableWithoutUnicode) {
  const std::vector<double> values = {0, 1, 2, 3};
  EXPECT_EQ(line_chart(values, kPlain, kSmall),
            "accuracy: 3.0000 at round 4, highest 3.0000 at round 4\n"
            "3.00 |             ***\n"
            "     |        *****\n"
            "     |   *****\n"
            "0.00 |***\n"
            "     +----------------\n"
            "      1              4\n");
}

// 32 by 16 dots: dot x stands at level round(15 x / 31), two neighbours at each.
TEST(LineChart, UsesBrailleDots) {
  const std::vector<double> values = {0, 1};
  const auto lines = lines_of(line_chart(values, kUnicode, kSmall));
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_EQ(lines[1], "1.00 ┤            ⣀⠤⠒⠉");
  EXPECT_EQ(lines[2], "     │        ⣀⠤⠒⠉");
  EXPECT_EQ(lines[4], "0.00 ┤⣀⠤⠒⠉");
  EXPECT_EQ(lines[5], "     └────────────────");
}

TEST(LineChart, NeverExceedsItsWidth) {
  std::vector<double> values;
  for (int n : {1, 2, 3, 10, 1000, 20'000}) {
    values.assign(static_cast<std::size_t>(n), 0);
    for (int i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = std::sin(0.1 * i) * 1e5;
    for (int columns : {20, 33, 80, 300}) {
      Terminal terminal = kUnicode;
      terminal.columns = columns;
      const auto lines = lines_of(
          line_chart(values, terminal, {.title = "a", .x_label = "step", .columns_max = 100}));
      for (std::size_t i = 1; i < lines.size(); ++i) {
        EXPECT_LE(columns_of(lines[i]), static_cast<std::size_t>(std::min(columns, 100)));
      }
    }
  }
}

TEST(LineChart, ReachesItsTopAndBottomInEveryColumnWithoutGaps) {
  std::vector<double> values;
  for (int i = 0; i < 40; ++i) values.push_back(i % 2);
  for (const std::string& line : lines_of(line_chart(values, kPlain, kSmall))) {
    if (line.starts_with("accuracy") || line.find('+') != line.npos) continue;
    const std::size_t axis = line.find('|');
    if (axis == line.npos) continue;
    EXPECT_EQ(line.substr(axis + 1), std::string(line.size() - axis - 1, '*'));
  }
}

TEST(LineChart, PassesOverWhatIsMissing) {
  const double missing = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> with = {0, missing, missing, 3};
  EXPECT_EQ(line_chart(with, kPlain, kSmall),
            line_chart(std::vector<double>{0, 1, 2, 3}, kPlain, kSmall));
  EXPECT_EQ(line_chart(std::vector<double>{missing}, kPlain, kSmall), "accuracy: no values\n");
  EXPECT_EQ(line_chart({}, kPlain, kSmall), "accuracy: no values\n");
}

// An evaluation every 50 steps and one at the end: 0, 50, 200.
TEST(LineChart, StandsWhereItsValuesWereTaken) {
  const ChartOptions steps{
      .title = "accuracy", .x_label = "step", .rows = 4, .columns_max = 22, .at = {0, 50, 200}};
  EXPECT_EQ(line_chart(std::vector<double>{0, 0.75, 3}, kPlain, steps),
            "accuracy: 3.0000 at step 200, highest 3.0000 at step 200\n"
            "3.00 |             ***\n"
            "     |        *****\n"
            "     |   *****\n"
            "0.00 |***\n"
            "     +----------------\n"
            "      0            200\n");
}

TEST(LineChart, NamesLastAndHighest) {
  const std::vector<double> values = {0.5, 0.84211, 0.8};
  EXPECT_THAT(line_chart(values, kPlain, kSmall),
              HasSubstr("accuracy: 0.8000 at round 3, highest 0.8421 at round 2\n"));
}

TEST(LineChart, AConstantIsALineInTheMiddle) {
  const auto lines = lines_of(line_chart(std::vector<double>{2, 2, 2}, kPlain, kSmall));
  EXPECT_THAT(lines[2], HasSubstr("|**************"));
}

TEST(LineChart, ColoursOnlyTheCurve) {
  Terminal terminal = kPlain;
  terminal.colour = true;
  const std::string text = line_chart(std::vector<double>{0, 1, 2, 3}, terminal, kSmall);
  EXPECT_THAT(text, HasSubstr("0.00 |\x1b[32m***\x1b[0m\n"));
  EXPECT_THAT(text, HasSubstr("\n     +-----"));
}

}  // namespace
}  // namespace starling::telemetry
