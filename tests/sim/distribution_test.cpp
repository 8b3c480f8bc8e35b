// SPDX-License-Identifier: Apache-2.0
#include "core/sim/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace starling::sim {
namespace {

double mean_of_draws(std::string_view text, Unit unit, int count) {
  const auto distribution = Distribution::parse(text, unit);
  EXPECT_TRUE(distribution) << text;
  Rng rng({.seed = 7});
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += distribution->draw(rng);
  return sum / count;
}

TEST(Distribution, ConstantsAreWrittenInTheirUnits) {
  Rng rng({.seed = 1});
  const auto draw = [&](std::string_view text, Unit unit) {
    const auto distribution = Distribution::parse(text, unit);
    EXPECT_TRUE(distribution && distribution->constant()) << text;
    return distribution->draw(rng);
  };
  EXPECT_DOUBLE_EQ(draw("20ms", Unit::kDuration), 0.02);
  EXPECT_DOUBLE_EQ(draw("10Mbit/s", Unit::kRate), 1.25e6);
  EXPECT_DOUBLE_EQ(draw("1GB/s", Unit::kRate), 1e9);
  EXPECT_DOUBLE_EQ(draw("512bit/s", Unit::kRate), 64);
  EXPECT_DOUBLE_EQ(draw("1.5", Unit::kFactor), 1.5);
}

TEST(Distribution, MeansAreTheirClosedForms) {
  constexpr int kDraws = 200'000;
  // Four standard errors.
  EXPECT_NEAR(mean_of_draws("uniform:5ms,15ms", Unit::kDuration, kDraws), 0.010,
              4 * 0.01 / std::sqrt(12.0 * kDraws));
  EXPECT_NEAR(mean_of_draws("exponential:20ms", Unit::kDuration, kDraws), 0.020,
              4 * 0.02 / std::sqrt(kDraws));
  const double variance = (std::exp(0.25) - 1) * std::exp(0.25);
  EXPECT_NEAR(mean_of_draws("lognormal:1,0.5", Unit::kFactor, kDraws), std::exp(0.125),
              4 * std::sqrt(variance / kDraws));
}

TEST(Distribution, RefusesWhatIsNone) {
  for (const std::string_view text :
       {"", "fast", "-5ms", "uniform:5ms", "uniform:15ms,5ms", "exponential:5ms,6ms",
        "lognormal:5ms", "lognormal:5ms,11", "lognormal:5ms,-1", "normal:5ms,1ms", "5", "inf",
        "uniform:,", ":", "uniform:5ms,6ms,7ms"}) {
    const auto distribution = Distribution::parse(text, Unit::kDuration);
    ASSERT_FALSE(distribution) << text;
    EXPECT_EQ(distribution.error().code(), "bad-distribution");
  }
  EXPECT_FALSE(Distribution::parse("0bit/s", Unit::kRate));
  EXPECT_FALSE(Distribution::parse("10", Unit::kRate));
  EXPECT_FALSE(Distribution::parse("nan", Unit::kFactor));
}

TEST(WriteRate, IsShortAndReadAsTheSame) {
  EXPECT_EQ(write_rate(1.25e8), "1Gbit/s");
  EXPECT_EQ(write_rate(1e6), "1MB/s");
  EXPECT_EQ(write_rate(62'500), "62.5kB/s");
  EXPECT_EQ(write_rate(1.0 / 8), "1bit/s");
  for (const double rate : {1e-9, 0.1, 1e17 / 3, 123456.789, 1e300}) {
    const auto read = Distribution::parse(write_rate(rate), Unit::kRate);
    ASSERT_TRUE(read) << write_rate(rate);
    EXPECT_EQ(read->least(), rate) << write_rate(rate);
  }
}

}  // namespace
}  // namespace starling::sim
