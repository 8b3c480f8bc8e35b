// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/fixed_point_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/rng.h"
#include "core/linalg/sum.h"

namespace starling::aggregate {
namespace {

struct Addend {
  double weight;
  std::vector<float> values;
};

std::vector<Addend> random_addends(Rng& rng, std::size_t count, std::size_t elements) {
  std::vector<Addend> addends(count);
  for (Addend& addend : addends) {
    addend.weight = static_cast<double>(1 + rng.below(50'000));
    for (std::size_t i = 0; i < elements; ++i) {
      // Magnitudes from 2^-60 to 2^24, both signs: cancellation and tiny terms beside huge ones.
      const double magnitude = std::exp2(rng.uniform(-60, 24));
      addend.values.push_back(static_cast<float>(rng.below(2) == 0 ? magnitude : -magnitude));
    }
  }
  return addends;
}

FixedPointScale default_scale(std::uint32_t count) {
  return FixedPointScale::for_bounds(0x1p24, 0x1p24, count).value();
}

Bytes sum_bytes(const std::vector<Addend>& addends, FixedPointScale scale) {
  FixedPointSum sum(addends[0].values.size(), scale);
  for (const Addend& addend : addends) sum.add(addend.weight, addend.values);
  return sum.serialize();
}

TEST(FixedPointSum, EqualsTheExactSumToItsStatedResolution) {
  Rng rng({.seed = 1});
  constexpr std::size_t kElements = 200;
  for (const std::size_t count : {1U, 2U, 10U, 500U}) {
    const auto addends = random_addends(rng, count, kElements);
    const FixedPointScale scale = default_scale(static_cast<std::uint32_t>(count));
    FixedPointSum sum(kElements, scale);
    std::vector<linalg::ExactSum> exact(kElements);
    for (const Addend& addend : addends) {
      sum.add(addend.weight, addend.values);
      for (std::size_t i = 0; i < kElements; ++i) {
        exact[i].add(addend.weight * static_cast<double>(addend.values[i]));
      }
    }
    std::vector<double> out(kElements);
    sum.normalize();
    sum.divide_into(1, 0, out);
    const double resolution = std::ldexp(1.0, -(scale.high_exponent() + 52));
    for (std::size_t i = 0; i < kElements; ++i) {
      const double wanted = exact[i].value();
      // Each addition rounds once to the resolution; reading rounds to double.
      const double tolerance = static_cast<double>(count) * resolution + std::abs(wanted) * 0x1p-52;
      EXPECT_NEAR(out[i], wanted, tolerance);
    }
  }
}

TEST(FixedPointSum, SmallDeltasKeepFloatAccuracyBesideTheDefaultBounds) {
  FixedPointSum sum(1, default_scale(2));
  const float tiny = 3.3e-7F;
  sum.add(1, std::span(&tiny, 1));
  double out = 0;
  sum.normalize();
  sum.divide_into(1, 0, std::span(&out, 1));
  EXPECT_EQ(static_cast<float>(out), tiny);
}

TEST(FixedPointSum, TheBitsDoNotDependOnOrderOrGrouping) {
  Rng rng({.seed = 2});
  auto addends = random_addends(rng, 60, 50);
  const FixedPointScale scale = default_scale(60);
  const Bytes reference = sum_bytes(addends, scale);
  for (int trial = 0; trial < 20; ++trial) {
    rng.shuffle(std::span(addends));
    EXPECT_EQ(sum_bytes(addends, scale), reference);
    FixedPointSum left(50, scale);
    FixedPointSum right(50, scale);
    const std::size_t cut = rng.below(61);
    for (std::size_t i = 0; i < addends.size(); ++i) {
      (i < cut ? left : right).add(addends[i].weight, addends[i].values);
    }
    auto stored = FixedPointSum::deserialize(right.serialize(), 50);
    ASSERT_TRUE(stored);
    left.merge(*stored);
    EXPECT_EQ(left.serialize(), reference);
  }
}

TEST(FixedPointSum, TheLargestValuesOfEveryCountStillFit) {
  for (const std::uint32_t count : {1U, 2U, 3U, 4096U, 4097U, 20'000U}) {
    const FixedPointScale scale = FixedPointScale::for_bounds(1000, 49'999, count).value();
    FixedPointSum sum(2, scale);
    const std::vector<float> values{1000, -1000};
    for (std::uint32_t i = 0; i < count; ++i) sum.add(49'999, values);
    std::vector<double> out(2);
    sum.normalize();
    sum.divide_into(49'999.0 * count, 0, out);
    EXPECT_EQ(out[0], 1000) << count;
    EXPECT_EQ(out[1], -1000) << count;
  }
}

TEST(FixedPointSum, ManyMergesCarryInTime) {
  const FixedPointScale scale = default_scale(100'000);
  const float value = 0.999999F;
  FixedPointSum total(1, scale);
  double expected = 0;
  for (int i = 0; i < 30; ++i) {
    FixedPointSum part(1, scale);
    for (int j = 0; j < 1000; ++j) part.add(3, std::span(&value, 1));
    total.merge(part);
    expected += 3000 * static_cast<double>(value);
  }
  double out = 0;
  total.normalize();
  total.divide_into(1, 0, std::span(&out, 1));
  EXPECT_NEAR(out, expected, 1e-9);
}

TEST(FixedPointSum, RefusesBoundsThatLeaveNoScale) {
  EXPECT_EQ(FixedPointScale::for_bounds(1e30, 1e15, 10).error().code(), "bounds-too-wide");
  EXPECT_EQ(FixedPointScale::for_bounds(1e30, 1, 1).error().code(), "bounds-too-wide");
  EXPECT_EQ(FixedPointScale::for_bounds(0x1p34, 0x1p24, 4096).value().high_exponent(), -8);
  EXPECT_FALSE(FixedPointScale::for_bounds(0x1p35, 0x1p24, 4096));
  EXPECT_TRUE(FixedPointScale::for_bounds(0x1p24, 0x1p24, 1'000'000)) << "the default bounds";
  EXPECT_TRUE(FixedPointScale::for_bounds(1e-20, 1, 1));
}

TEST(FixedPointSum, RefusesDamagedBytes) {
  FixedPointSum sum(3, default_scale(1));
  const Bytes good = sum.serialize();
  ASSERT_TRUE(FixedPointSum::deserialize(good, 3));
  EXPECT_FALSE(FixedPointSum::deserialize(good, 2)) << "larger than expected";
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(FixedPointSum::deserialize(ByteView(good).first(cut), 3)) << cut;
  }
  Bytes huge = good;
  store_little<std::uint64_t>(huge.data(), UINT64_MAX / 16 + 1);
  EXPECT_FALSE(FixedPointSum::deserialize(huge, SIZE_MAX));
  Bytes limb = good;
  store_little<std::int64_t>(limb.data() + limb.size() - 8, INT64_MAX);
  EXPECT_EQ(FixedPointSum::deserialize(limb, 3).error().code(), "bad-sum");
}

}  // namespace
}  // namespace starling::aggregate
