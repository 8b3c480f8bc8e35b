// SPDX-License-Identifier: Apache-2.0
#include "core/report/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/rng.h"

namespace starling::report {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Pointwise;

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Scale, LaysItsEndsOnZeroAndOne) {
  const Scale linear(2, 6, false);
  EXPECT_EQ(linear.share(2), 0);
  EXPECT_EQ(linear.share(5), 0.75);
  EXPECT_EQ(linear.share(6), 1);
  EXPECT_EQ(linear.share(kNotANumber), std::nullopt);
  const Scale logarithmic(0.01, 100, true);
  EXPECT_DOUBLE_EQ(*logarithmic.share(1), 0.5);
  EXPECT_EQ(logarithmic.share(0), std::nullopt);
  EXPECT_EQ(logarithmic.share(-1), std::nullopt);
  EXPECT_EQ(logarithmic.share(kInfinity), std::nullopt);
}

TEST(Scale, TicksAreRoundNumbers) {
  EXPECT_THAT(Scale(0, 1, false).ticks(6),
              Pointwise(DoubleEq(), std::vector<double>{0, 0.2, 0.4, 0.6, 0.8, 1.0}));
  EXPECT_THAT(Scale(0, 4000, false).ticks(5), ElementsAre(0, 1000, 2000, 3000, 4000));
  EXPECT_THAT(Scale(-3, 3, false).ticks(3), ElementsAre(-2, 0, 2));
  EXPECT_THAT(Scale(1, 1e6, true).ticks(7),
              Pointwise(DoubleEq(), std::vector<double>{1, 10, 100, 1e3, 1e4, 1e5, 1e6}));
  EXPECT_THAT(Scale(1, 100, true).ticks(7),
              Pointwise(DoubleEq(), std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
}

// Whatever the range: a few ticks, ascending, within it, their distance 1, 2 or 5 times a power of
// ten.
TEST(Scale, TicksSuitAnyRange) {
  Rng rng(StreamKey{.seed = 7});
  for (int i = 0; i < 2000; ++i) {
    const double low = (rng.uniform() - 0.5) * std::pow(10, 20 * rng.uniform() - 10);
    const double high = low + std::pow(10, 20 * rng.uniform() - 10) + std::abs(low) * 1e-5;
    const int count_max = 3 + static_cast<int>(rng.uniform() * 8);
    const std::vector<double> ticks = Scale(low, high, false).ticks(count_max);
    ASSERT_LE(ticks.size(), static_cast<std::size_t>(count_max)) << low << " " << high;
    ASSERT_GE(ticks.size(), 1U) << low << " " << high << " " << count_max;
    const double slack = 1e-5 * (high - low);
    EXPECT_GE(ticks.front(), low - slack);
    EXPECT_LE(ticks.back(), high + slack);
    if (ticks.size() < 2) continue;
    const double step = ticks[1] - ticks[0];
    const double mantissa = step / std::pow(10, std::floor(std::log10(step) + 1e-6));
    EXPECT_TRUE(std::abs(mantissa - 1) < 1e-3 || std::abs(mantissa - 2) < 1e-3 ||
                std::abs(mantissa - 5) < 1e-3)
        << mantissa;
  }
}

TEST(FitScale, TakesWhatCanBeShown) {
  const auto scale = fit_scale(std::vector{kNotANumber, 3.0, kInfinity, 1.0}, false, false, 5);
  ASSERT_TRUE(scale);
  EXPECT_EQ(scale->low(), 1);
  EXPECT_EQ(scale->high(), 3);
  EXPECT_FALSE(fit_scale(std::vector{kNotANumber, -kInfinity}, false, false, 5));
  EXPECT_FALSE(fit_scale(std::vector{0.0, -1.0}, true, false, 5));
  EXPECT_FALSE(fit_scale({}, false, true, 5));
}

TEST(FitScale, WidensToTicks) {
  const auto scale = fit_scale(std::vector{0.26, 0.899}, false, true, 7);
  ASSERT_TRUE(scale);
  const std::vector<double> ticks = scale->ticks(7);
  EXPECT_DOUBLE_EQ(scale->low(), ticks.front());
  EXPECT_DOUBLE_EQ(scale->high(), ticks.back());
  const auto decades = fit_scale(std::vector{0.3, 20.0}, true, true, 7);
  EXPECT_DOUBLE_EQ(decades->low(), 0.1);
  EXPECT_DOUBLE_EQ(decades->high(), 100);
}

TEST(FitScale, GivesASingleValueRoom) {
  for (const bool logarithmic : {false, true}) {
    for (const bool round_ends : {false, true}) {
      for (const double value : {1.0, 0.84, 3e8, 1e-300, 1e300}) {
        const auto scale = fit_scale(std::vector{value}, logarithmic, round_ends, 5);
        ASSERT_TRUE(scale) << value;
        EXPECT_LT(scale->low(), scale->high());
        EXPECT_LE(scale->low(), value);
        EXPECT_GE(scale->high(), value);
        EXPECT_FALSE(scale->ticks(5).empty()) << value << logarithmic << round_ends;
      }
    }
  }
  EXPECT_TRUE(fit_scale(std::vector{0.0}, false, true, 5));
  EXPECT_TRUE(fit_scale(std::vector{-1.7e308, 1.7e308}, false, true, 5));
  EXPECT_TRUE(fit_scale(std::vector{5e-324, 1.7e308}, true, true, 5));
}

TEST(Units, SuitTheirValues) {
  EXPECT_EQ(display_unit(Quantity::kBytes, 999).name, "B");
  EXPECT_EQ(display_unit(Quantity::kBytes, 4.8e6).name, "MB");
  EXPECT_EQ(display_unit(Quantity::kSeconds, 0.02).name, "ms");
  EXPECT_EQ(display_unit(Quantity::kSeconds, 90).name, "s");
  EXPECT_EQ(display_unit(Quantity::kSeconds, 1200).name, "min");
  EXPECT_EQ(display_unit(Quantity::kNumber, 1e9).name, "");
  EXPECT_EQ(format_value(Quantity::kBytes, 251.2e6), "251.2 MB");
  EXPECT_EQ(format_value(Quantity::kSeconds, 0), "0 s");
  EXPECT_EQ(format_value(Quantity::kSeconds, 1800), "30 min");
  EXPECT_EQ(format_value(Quantity::kNumber, 0.84213), "0.8421");
  EXPECT_EQ(format_value(Quantity::kNumber, 512000), "512,000");
  EXPECT_EQ(format_value(Quantity::kNumber, kNotANumber), "–");
}

TEST(TickLabel, HasTheDecimalsThatTellNeighboursApart) {
  EXPECT_EQ(tick_label(0.8, 0.2), "0.8");
  EXPECT_EQ(tick_label(0.85, 0.05), "0.85");
  EXPECT_EQ(tick_label(0, 1000), "0");
  EXPECT_EQ(tick_label(12000, 1000), "12,000");
  EXPECT_EQ(tick_label(-1200, 100), "-1,200");
  EXPECT_EQ(tick_label(0.01, 0), "0.01");
  EXPECT_EQ(tick_label(1e-9, 0), "1e-9");
  EXPECT_EQ(tick_label(2e9, 1e9), "2e+9");
}

}  // namespace
}  // namespace starling::report
