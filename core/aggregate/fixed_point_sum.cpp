// SPDX-License-Identifier: Apache-2.0
#include "core/aggregate/fixed_point_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/check.h"
#include "core/linalg/kernels.h"

namespace starling::aggregate {
namespace {

constexpr int kLowBits = 51;
constexpr int kHighExponentMin = -8;  // coarser than 2^-44 is no float accuracy any more
constexpr std::int64_t kCarry = std::int64_t{1} << kLowBits;
constexpr std::uint32_t kAdditionsBeforeCarry = 4096;  // each adds at most 2^50 to a low limb

// 16 KiB of an update, 32 KiB of sums: read twice, for its largest value and to be added, an update
// comes from the first cache the second time.
constexpr std::size_t kTile = 4096;
constexpr double kOneLimbMax = 0x1p62;
constexpr std::int64_t kHighOfOneLimb = 1 << 10;  // below it high * 2^51 + low is within 2^62

int ceil_log2(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return mantissa == 0.5 ? exponent - 1 : exponent;
}

struct Limbs {
  std::int64_t high, low;
};

// The one representation of a sum: -2^50 <= low < 2^50.
Limbs split(std::int64_t sum) {
  const std::int64_t high = (sum + kCarry / 2) >> kLowBits;
  return {high, sum - high * kCarry};
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

double FixedPointScale::resolution() const { return std::ldexp(0.5, -high_exponent_ - kLowBits); }

FixedPointSum::FixedPointSum(std::size_t elements, FixedPointScale scale)
    : scale_(scale),
      elements_(elements),
      tiles_((elements + kTile - 1) / kTile),
      low_(elements * sizeof(std::int64_t), PageBlock::Pages::kLarge) {}

FixedPointSum::FixedPointSum(const FixedPointSum& other)
    : FixedPointSum(other.elements_, other.scale_) {
  tiles_ = other.tiles_;
  if (other.high_.size() > 0) high_ = PageBlock(other.high_.size());
  for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
    const Range range = range_of(tile);
    std::copy_n(other.low() + range.begin, range.size, low() + range.begin);
    if (!tiles_[tile].wide) continue;
    std::copy_n(other.high() + range.begin, range.size, high() + range.begin);
  }
}

std::size_t FixedPointSum::memory_bytes() const {
  std::size_t integers = elements_;
  for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
    if (tiles_[tile].wide) integers += range_of(tile).size;
  }
  return integers * sizeof(std::int64_t);
}

FixedPointSum::Range FixedPointSum::range_of(std::size_t tile) const {
  return {tile * kTile, std::min(kTile, elements_ - tile * kTile)};
}

void FixedPointSum::add(double weight, std::span<const float> values, std::size_t first) {
  STARLING_CHECK(first <= elements_ && values.size() <= elements_ - first);
  const double factor = std::ldexp(weight, scale_.high_exponent() + kLowBits);
  if (!std::isfinite(factor)) return;  // within such bounds every float is zero
  while (!values.empty()) {
    const std::size_t tile = first / kTile;
    const std::size_t size = std::min(values.size(), (tile + 1) * kTile - first);
    add_to_tile(tile, factor, first, values.first(size));
    values = values.subspan(size);
    first += size;
  }
}

void FixedPointSum::add_to_tile(std::size_t tile, double factor, std::size_t first,
                                std::span<const float> values) {
  const linalg::Kernels& kernels = linalg::default_kernels();
  if (!tiles_[tile].wide) {
    const std::int32_t largest = kernels.largest_magnitude_bits(values.data(), values.size());
    // One more for what rounding adds to a term.
    make_room(tile, static_cast<double>(std::bit_cast<float>(largest)) * std::abs(factor) + 1);
  }
  if (!tiles_[tile].wide) {
    return kernels.add_fixed(low() + first, values.data(), values.size(), factor);
  }
  count_additions(tile, 1);
  kernels.add_fixed_wide(high() + first, low() + first, values.data(), values.size(), factor);
}

// For terms of magnitudes up to `term`. The bound adds up magnitudes; the sums themselves may be
// much smaller. A tile that is close to the limit is widened, not looked through each time.
void FixedPointSum::make_room(std::size_t tile, double term) {
  double& bound = tiles_[tile].bound;
  if (bound + term >= kOneLimbMax) {
    const Range range = range_of(tile);
    std::int64_t largest = 0;
    for (const std::int64_t sum : std::span(low() + range.begin, range.size)) {
      largest = std::max(largest, std::abs(sum));
    }
    bound = static_cast<double>(largest);
    if (bound + term >= kOneLimbMax / 2) widen(tile);
  }
  bound += term;
}

void FixedPointSum::widen(std::size_t tile) {
  if (high_.size() == 0) high_ = PageBlock(elements_ * sizeof(std::int64_t));
  const auto [begin, size] = range_of(tile);
  for (std::size_t i = begin; i < begin + size; ++i) {
    const Limbs limbs = split(low()[i]);
    high()[i] = limbs.high;
    low()[i] = limbs.low;
  }
  tiles_[tile].wide = true;
}

// Before as many are added to a wide tile: carries where its low limbs might overflow.
void FixedPointSum::count_additions(std::size_t tile, std::uint32_t additions) {
  std::uint32_t& count = tiles_[tile].additions_since_carry;
  if (count + additions > kAdditionsBeforeCarry) carry(tile);
  count += additions;
}

void FixedPointSum::carry(std::size_t tile) {
  const auto [begin, size] = range_of(tile);
  for (std::size_t i = begin; i < begin + size; ++i) {
    const Limbs limbs = split(low()[i]);
    high()[i] += limbs.high;
    low()[i] = limbs.low;
  }
  tiles_[tile].additions_since_carry = 0;
}

void FixedPointSum::merge(const FixedPointSum& other) {
  STARLING_CHECK(other.scale_ == scale_ && other.elements() == elements());
  for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
    const Tile& theirs = other.tiles_[tile];
    if (!tiles_[tile].wide) {
      if (theirs.wide) {
        widen(tile);
      } else {
        make_room(tile, theirs.bound);
      }
    }
    if (tiles_[tile].wide) count_additions(tile, theirs.additions_since_carry + 1);
    const auto [begin, size] = range_of(tile);
    for (std::size_t i = begin; i < begin + size; ++i) {
      if (!tiles_[tile].wide) {
        low()[i] += other.low()[i];
        continue;
      }
      const Limbs limbs =
          theirs.wide ? Limbs{other.high()[i], other.low()[i]} : split(other.low()[i]);
      high()[i] += limbs.high;
      low()[i] += limbs.low;
    }
  }
}

// Where one integer holds the sum, it is high + low * 2^-51 rounded once, as the two limbs are.
void FixedPointSum::divide_tile(std::size_t tile, double divisor, double* out) {
  const auto [begin, size] = range_of(tile);
  const double unit = std::ldexp(1.0, -scale_.high_exponent());
  const double low_unit = std::ldexp(1.0, -kLowBits);
  if (!tiles_[tile].wide) {
    const double both = unit * low_unit;
    return linalg::default_kernels().fixed_to_double(low() + begin, out, size, both, divisor);
  }
  carry(tile);
  for (std::size_t i = 0; i < size; ++i) {
    const std::int64_t low_limb = std::bit_cast<std::int64_t>(
        load_little<std::uint64_t>(low_.data() + (begin + i) * sizeof(std::int64_t)));
    const double sum =
        static_cast<double>(high()[begin + i]) + static_cast<double>(low_limb) * low_unit;
    const double quotient = sum * unit / divisor;
    std::memcpy(out + i, &quotient, sizeof quotient);  // out may be the memory of the limb
  }
}

PageBlock FixedPointSum::divide(double divisor) && {
  STARLING_CHECK(divisor > 0);
  auto* const out = reinterpret_cast<double*>(low_.data());
  for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
    const Range range = range_of(tile);
    divide_tile(tile, divisor, out + range.begin);
    if (!tiles_[tile].wide) continue;
    high_.release(range.begin * sizeof(std::int64_t), range.size * sizeof(std::int64_t));
  }
  high_ = PageBlock();
  return std::move(low_);
}

Bytes FixedPointSum::serialize() {
  Bytes bytes(12 + elements_ * 16);
  store_little<std::uint64_t>(bytes.data(), elements_);
  store_little<std::int32_t>(bytes.data() + 8, scale_.high_exponent());
  std::byte* const high_bytes = bytes.data() + 12;
  std::byte* const low_bytes = high_bytes + elements_ * 8;
  for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
    if (tiles_[tile].wide) carry(tile);
    const auto [begin, size] = range_of(tile);
    for (std::size_t i = begin; i < begin + size; ++i) {
      const Limbs limbs = tiles_[tile].wide ? Limbs{high()[i], low()[i]} : split(low()[i]);
      store_little<std::int64_t>(high_bytes + i * 8, limbs.high);
      store_little<std::int64_t>(low_bytes + i * 8, limbs.low);
    }
  }
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
  const std::byte* const high_bytes = bytes.data() + 12;
  const std::byte* const low_bytes = high_bytes + sum.elements_ * 8;
  for (std::size_t tile = 0; tile < sum.tiles_.size(); ++tile) {
    const auto [begin, size] = sum.range_of(tile);
    std::int64_t largest = 0;
    for (std::size_t i = begin; i < begin + size; ++i) {
      const auto low_limb = load_little<std::int64_t>(low_bytes + i * 8);
      if (low_limb < -kCarry / 2 || low_limb >= kCarry / 2) {
        return rejected("bad-sum", "a stored sum has a limb out of range");
      }
      const auto high_limb = load_little<std::int64_t>(high_bytes + i * 8);
      largest = std::max(largest, high_limb < 0 ? -(high_limb + 1) : high_limb);
    }
    const bool wide = largest >= kHighOfOneLimb;
    if (wide) sum.widen(tile);
    for (std::size_t i = begin; i < begin + size; ++i) {
      const auto high_limb = load_little<std::int64_t>(high_bytes + i * 8);
      const auto low_limb = load_little<std::int64_t>(low_bytes + i * 8);
      if (wide) sum.high()[i] = high_limb;
      sum.low()[i] = wide ? low_limb : high_limb * kCarry + low_limb;
    }
    sum.tiles_[tile].bound = static_cast<double>(largest + 2) * static_cast<double>(kCarry);
  }
  return sum;
}

}  // namespace starling::aggregate
