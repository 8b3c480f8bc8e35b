// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/fixed_point_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/check.h"

namespace starling::aggregate {
namespace {

constexpr int kLowBits = 51;
constexpr int kHighExponentMin = -8;  // coarser than 2^-44 is no float accuracy any more
constexpr std::int64_t kCarry = std::int64_t{1} << kLowBits;
constexpr std::uint32_t kAdditionsBeforeCarry = 4096;  // each adds at most 2^50 to a low limb

// Adding 1.5 * 2^52 rounds a double of magnitude below 2^51 to an integer, which then stands in
// the low bits of the representation: no conversion instruction, vectorised on every processor.
constexpr double kRoundingShift = 0x1.8p52;

int ceil_log2(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return mantissa == 0.5 ? exponent - 1 : exponent;
}

std::int64_t integer_of(double shifted) {
  return std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(kRoundingShift);
}

}  // namespace

Result<FixedPointScale> FixedPointScale::for_bounds(double value_max, double weight_max,
                                                    std::uint32_t contributions_max) {
  STARLING_CHECK(value_max > 0 && weight_max > 0 && contributions_max > 0);
  STARLING_CHECK(std::isfinite(value_max) && std::isfinite(weight_max));
  const int product_bits = ceil_log2(value_max) + ceil_log2(weight_max);
  const int count_bits = ceil_log2(contributions_max);
  const int exponent = std::min(50, 62 - count_bits) - product_bits;
  if (exponent < kHighExponentMin || exponent > 900) {
    return wrong_setting("bounds-too-wide",
                         fmt::format("values up to {:g} with weights up to {:g} cannot be summed "
                                     "exactly; lower round.value-max or round.weight-max",
                                     value_max, weight_max));
  }
  return FixedPointScale(exponent);
}

FixedPointSum::FixedPointSum(std::size_t elements, FixedPointScale scale)
    : scale_(scale), high_(elements), low_(elements) {}

void FixedPointSum::add(double weight, std::span<const float> values) {
  STARLING_CHECK(values.size() == high_.size());
  if (additions_since_carry_ >= kAdditionsBeforeCarry) normalize();
  ++additions_since_carry_;
  const double high_scale = std::ldexp(1.0, scale_.high_exponent());
  const double low_scale = std::ldexp(1.0, kLowBits);
  std::int64_t* high = high_.data();
  std::int64_t* low = low_.data();
  const float* x = values.data();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double scaled = weight * static_cast<double>(x[i]) * high_scale;
    const double shifted = scaled + kRoundingShift;
    const double rest = scaled - (shifted - kRoundingShift);
    high[i] += integer_of(shifted);
    low[i] += integer_of(rest * low_scale + kRoundingShift);
  }
}

void FixedPointSum::merge(const FixedPointSum& other) {
  STARLING_CHECK(other.scale_ == scale_ && other.elements() == elements());
  if (additions_since_carry_ + other.additions_since_carry_ + 1 > kAdditionsBeforeCarry) {
    normalize();
  }
  for (std::size_t i = 0; i < high_.size(); ++i) {
    high_[i] += other.high_[i];
    low_[i] += other.low_[i];
  }
  additions_since_carry_ += other.additions_since_carry_ + 1;
}

// Carries until -2^50 <= low < 2^50: the one representation of each sum.
void FixedPointSum::normalize() {
  for (std::size_t i = 0; i < high_.size(); ++i) {
    const std::int64_t carry = (low_[i] + kCarry / 2) >> kLowBits;
    high_[i] += carry;
    low_[i] -= carry * kCarry;
  }
  additions_since_carry_ = 0;
}

void FixedPointSum::divide_into(double divisor, std::size_t begin, std::span<double> out) const {
  STARLING_CHECK(begin <= high_.size() && out.size() <= high_.size() - begin && divisor > 0);
  STARLING_CHECK(additions_since_carry_ == 0);
  const double unit = std::ldexp(1.0, -scale_.high_exponent());
  const double low_unit = std::ldexp(1.0, -kLowBits);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double high = static_cast<double>(high_[begin + i]);
    const double sum = high + static_cast<double>(low_[begin + i]) * low_unit;
    out[i] = sum * unit / divisor;
  }
}

Bytes FixedPointSum::serialize() {
  normalize();
  Bytes bytes(12 + high_.size() * 16);
  store_little<std::uint64_t>(bytes.data(), high_.size());
  store_little<std::int32_t>(bytes.data() + 8, scale_.high_exponent());
  if (high_.empty()) return bytes;
  std::memcpy(bytes.data() + 12, high_.data(), high_.size() * 8);
  std::memcpy(bytes.data() + 12 + high_.size() * 8, low_.data(), low_.size() * 8);
  return bytes;
}

Result<FixedPointSum> FixedPointSum::deserialize(ByteView bytes, std::size_t elements_max) {
  if (bytes.size() < 12) return rejected("bad-sum", "a stored sum ends within its header");
  const auto elements = load_little<std::uint64_t>(bytes.data());
  if (elements > elements_max || bytes.size() != 12 + elements * 16) {
    return rejected(
        "bad-sum", fmt::format("a stored sum of {} elements has {} bytes", elements, bytes.size()));
  }
  const auto exponent = load_little<std::int32_t>(bytes.data() + 8);
  if (exponent < kHighExponentMin || exponent > 900) {
    return rejected("bad-sum", fmt::format("a stored sum has the impossible scale {}", exponent));
  }
  FixedPointSum sum(static_cast<std::size_t>(elements), FixedPointScale(exponent));
  if (elements == 0) return sum;
  std::memcpy(sum.high_.data(), bytes.data() + 12, sum.high_.size() * 8);
  std::memcpy(sum.low_.data(), bytes.data() + 12 + sum.high_.size() * 8, sum.low_.size() * 8);
  const bool canonical = std::all_of(sum.low_.begin(), sum.low_.end(), [](std::int64_t low) {
    return low >= -kCarry / 2 && low < kCarry / 2;
  });
  if (!canonical) return rejected("bad-sum", "a stored sum has a limb out of range");
  return sum;
}

}  // namespace starling::aggregate
