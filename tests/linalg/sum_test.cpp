// SPDX-License-Identifier: Apache-2.0
#include "core/linalg/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/rng.h"

namespace starling::linalg {
namespace {

constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kMin = std::numeric_limits<double>::min();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();

double exact_sum(std::span<const double> values) {
  ExactSum sum;
  for (const double v : values) sum.add(v);
  return sum.value();
}

double exact_sum(std::initializer_list<double> values) {
  return exact_sum(std::vector<double>(values));
}

// Any finite double: every exponent as likely as any other.
double any_double(Rng& rng) {
  for (;;) {
    const auto value = std::bit_cast<double>(rng.next_u64());
    if (std::isfinite(value)) return value;
  }
}

TEST(PairwiseSum, IsExactOnIntegersAndEmptyOnNothing) {
  std::vector<double> values(1000);
  std::iota(values.begin(), values.end(), 1);
  EXPECT_EQ(pairwise_sum(values), 500'500);
  EXPECT_EQ(pairwise_sum({}), 0);
}

TEST(ExactSum, GivesBackOneValueOfEveryKind) {
  for (const double v :
       {0.0, 1.0, -1.0, 0.1, kMax, -kMax, kMin, kTiny, -kTiny, 3 * kTiny, 1e-310}) {
    EXPECT_EQ(exact_sum({v}), v) << v;
  }
  Rng rng({.seed = 1});
  for (int i = 0; i < 10'000; ++i) {
    const double v = any_double(rng);
    ASSERT_EQ(exact_sum({v}), v) << v;
  }
}

TEST(ExactSum, SumsOfTwoRoundAsTheProcessorDoes) {
  Rng rng({.seed = 2});
  for (int i = 0; i < 100'000; ++i) {
    const double a = any_double(rng);
    // Near in magnitude every other time, so that cancellation and ties occur.
    const double b =
        i % 2 == 0 ? any_double(rng) : -a * (1 + std::ldexp(rng.uniform(), i % 60 - 60));
    if (!std::isfinite(b) || !std::isfinite(a + b)) continue;
    ASSERT_EQ(exact_sum({a, b}), a + b) << a << " + " << b;
  }
}

TEST(ExactSum, RoundsHalfToEvenAndSeesTheSmallestRest) {
  const double ulp = std::ldexp(1, -52);
  EXPECT_EQ(exact_sum({1, ulp / 2}), 1);
  EXPECT_EQ(exact_sum({1 + ulp, ulp / 2}), 1 + 2 * ulp);
  EXPECT_EQ(exact_sum({1, ulp / 2, kTiny}), 1 + ulp);
  EXPECT_EQ(exact_sum({1, ulp / 2, -kTiny}), 1);
  EXPECT_EQ(exact_sum({-1, -ulp / 2, -kTiny}), -1 - ulp);
}

TEST(ExactSum, CancelsOverTheWholeRange) {
  EXPECT_EQ(exact_sum({kMax, kTiny, -kMax}), kTiny);
  EXPECT_EQ(exact_sum({1e300, 1, -1e300, 1e-300, -1}), 1e-300);
  EXPECT_EQ(exact_sum({kMax, kMax, -kMax}), kMax);  // past the largest double on the way
  EXPECT_EQ(exact_sum({-kMax, -kMax, kMax, kMax}), 0);
}

TEST(ExactSum, OverflowsToInfinityOnlyInItsValue) {
  ExactSum sum;
  sum.add(kMax);
  sum.add(kMax);
  EXPECT_EQ(sum.value(), std::numeric_limits<double>::infinity());
  sum.add(-kMax);
  EXPECT_EQ(sum.value(), kMax);
  EXPECT_EQ(exact_sum({kMax, std::ldexp(1, 969)}), kMax);  // below half an ulp
  EXPECT_EQ(exact_sum({kMax, std::ldexp(1, 970)}), std::numeric_limits<double>::infinity());
}

TEST(ExactSum, StateDoesNotDependOnOrderOrGrouping) {
  Rng rng({.seed = 3});
  std::vector<double> values;
  for (int i = 0; i < 2000; ++i) {
    const double v = any_double(rng);
    values.push_back(v);
    if (i % 3 == 0) values.push_back(-v);
    if (i % 5 == 0) values.push_back(std::ldexp(rng.uniform(), -1060));
  }
  ExactSum all;
  for (const double v : values) all.add(v);
  for (int trial = 0; trial < 20; ++trial) {
    rng.shuffle(std::span(values));
    std::vector<ExactSum> parts(1 + rng.below(7));
    for (const double v : values) parts[rng.below(parts.size())].add(v);
    rng.shuffle(std::span(parts));
    ExactSum merged;
    for (const ExactSum& part : parts) merged.merge(part);
    ASSERT_EQ(merged, all);
    ASSERT_EQ(merged.value(), all.value());
  }
}

TEST(ExactSum, ManyAdditionsCarryCorrectly) {
  ExactSum sum;
  for (int i = 0; i < 3'000'000; ++i) sum.add(0.1);
  // 0.1 as a double is 3602879701896397 * 2^-55, so the sum is exactly this:
  EXPECT_EQ(sum.value(), static_cast<double>(3602879701896397.0L * 3'000'000 * 0x1p-55L));
  ExactSum doubled = sum;
  for (int i = 0; i < 20; ++i) doubled.merge(ExactSum(doubled));
  EXPECT_EQ(doubled.value(), std::ldexp(sum.value(), 20));
}

TEST(ExactSum, SurvivesStorage) {
  ExactSum sum;
  for (const double v : {1e200, -3.5, kTiny, -1e-200}) sum.add(v);
  ExactSum restored = ExactSum::from_limbs(sum.limbs());
  EXPECT_EQ(restored, sum);
  restored.add(-1e200);
  EXPECT_EQ(restored.value(), -3.5);
}

TEST(ExactSumDeathTest, RefusesWhatIsNotFinite) {
  ExactSum sum;
  EXPECT_DEATH(sum.add(std::numeric_limits<double>::infinity()), "isfinite");
  EXPECT_DEATH(sum.add(std::numeric_limits<double>::quiet_NaN()), "isfinite");
}

}  // namespace
}  // namespace starling::linalg
