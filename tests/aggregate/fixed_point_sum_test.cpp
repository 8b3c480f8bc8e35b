// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/fixed_point_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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

std::vector<double> divided(FixedPointSum sum, double divisor) {
  const std::size_t elements = sum.elements();
  const PageBlock quotients = std::move(sum).divide(divisor);
  EXPECT_EQ(quotients.size(), elements * sizeof(double));
  std::vector<double> out(elements);
  std::memcpy(out.data(), quotients.data(), elements * sizeof(double));
  return out;
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
    const std::vector<double> out = divided(std::move(sum), 1);
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
  const double out = divided(std::move(sum), 1)[0];
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
    const std::vector<double> out = divided(std::move(sum), 49'999.0 * count);
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
  const double out = divided(std::move(total), 1)[0];
  EXPECT_NEAR(out, expected, 1e-9);
}

// What the header's formula says, in integers of 128 bits, without tiles or kernels.
class PlainSum {
 public:
  PlainSum(std::size_t elements, FixedPointScale scale) : scale_(scale), sums_(elements) {}

  void add(double weight, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double scaled =
          std::ldexp(weight * static_cast<double>(values[i]), scale_.high_exponent());
      const double high = std::nearbyint(scaled);
      sums_[i] += static_cast<Wide>(high) * kCarry +
                  static_cast<Wide>(std::nearbyint((scaled - high) * 0x1p51));
    }
  }
  Bytes serialize() const {
    Bytes bytes(12 + sums_.size() * 16);
    store_little<std::uint64_t>(bytes.data(), sums_.size());
    store_little<std::int32_t>(bytes.data() + 8, scale_.high_exponent());
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      store_little(bytes.data() + 12 + i * 8, high(i));
      store_little(bytes.data() + 12 + (sums_.size() + i) * 8, low(i));
    }
    return bytes;
  }
  double mean(std::size_t i, double divisor) const {
    const double sum = static_cast<double>(high(i)) + static_cast<double>(low(i)) * 0x1p-51;
    return sum * std::ldexp(1.0, -scale_.high_exponent()) / divisor;
  }

 private:
  __extension__ using Wide = __int128;
  static constexpr Wide kCarry = Wide{1} << 51;
  std::int64_t high(std::size_t i) const {
    return static_cast<std::int64_t>((sums_[i] + kCarry / 2) >> 51);
  }
  std::int64_t low(std::size_t i) const {
    return static_cast<std::int64_t>(sums_[i] - high(i) * kCarry);
  }

  FixedPointScale scale_;
  std::vector<Wide> sums_;
};

// Three tiles and a part of one. The first stays small; the second grows step by step until one
// integer cannot hold it, the third is as large as the bounds allow from the beginning.
std::vector<float> growing_values(Rng& rng, std::size_t elements, int step) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const double exponent = i < 4096 ? -20 : i < 8192 ? step - 20 : 24;
    values[i] = static_cast<float>(rng.uniform(-1, 1) * std::exp2(exponent));
  }
  return values;
}

TEST(FixedPointSum, HasTheSameBitsAsPlainIntegersWhateverItsTilesNeed) {
  Rng rng({.seed = 4});
  constexpr std::size_t kElements = 3 * 4096 + 100;
  const FixedPointScale scale = default_scale(64);
  FixedPointSum sum(kElements, scale), left(kElements, scale), right(kElements, scale);
  PlainSum plain(kElements, scale);
  for (int step = 0; step < 44; ++step) {
    const double weight = 1 + rng.uniform() * 0x1p23;
    const auto values = growing_values(rng, kElements, step);
    plain.add(weight, values);
    sum.add(weight, std::span(values).first(5000));
    sum.add(weight, std::span(values).subspan(5000), 5000);
    (rng.below(2) == 0 ? left : right).add(weight, values);
    if (step % 4 != 0 && step < 40) continue;
    const Bytes expected = plain.serialize();
    FixedPointSum copy = sum;
    ASSERT_EQ(copy.serialize(), expected) << step;
    FixedPointSum merged = left;
    merged.merge(right);
    ASSERT_EQ(merged.serialize(), expected) << step;
    FixedPointSum stored = FixedPointSum::deserialize(expected, kElements).value();
    ASSERT_EQ(stored.serialize(), expected) << step;
    merged = left;
    merged.merge(FixedPointSum::deserialize(right.serialize(), kElements).value());
    ASSERT_EQ(merged.serialize(), expected) << step;
    const std::vector<double> means = divided(std::move(stored), 1234.5);
    ASSERT_EQ(divided(std::move(copy), 1234.5), means);
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(means[i], plain.mean(i, 1234.5)) << i;
    }
  }
}

TEST(FixedPointSum, ValuesThatCancelStayInOneInteger) {
  const FixedPointScale scale = default_scale(4096);
  PlainSum plain(1, scale);
  FixedPointSum sum(1, scale);
  for (int i = 0; i < 4096; ++i) {
    const float value = i % 2 == 0 ? 1.1F : -1.0999F;
    plain.add(100, std::span(&value, 1));
    sum.add(100, std::span(&value, 1));
  }
  EXPECT_EQ(sum.serialize(), plain.serialize());
  EXPECT_EQ(sum.memory_bytes(), 8U) << "no second integer";
}

TEST(FixedPointSum, WeightsBeyondEveryProductOfTheBoundsAddNothing) {
  const FixedPointScale scale = FixedPointScale::for_bounds(0x1p-996, 0x1p150, 2).value();
  FixedPointSum sum(2, scale);
  sum.add(0x1p150, std::vector<float>{0, -0.0F});
  EXPECT_EQ(sum.serialize(), FixedPointSum(2, scale).serialize());
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
