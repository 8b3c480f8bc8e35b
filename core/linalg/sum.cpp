// SPDX-License-Identifier: Apache-2.0
#include "core/linalg/sum.h"

#include <bit>
#include <cmath>

#include "core/base/check.h"

namespace starling::linalg {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::size_t kLeaf = 16;                // below this a plain loop
constexpr std::uint32_t kPendingMax = 1U << 30;  // limbs stay below 2^62
constexpr int kLowestExponent = -1088;           // of bit 0 of limb 0
constexpr int kSubnormalBit = -1074 - kLowestExponent;
constexpr std::int64_t kLimbMask = 0xFFFFFFFF;

// A non-negative number: bit i weighs 2^(i - 1088).
using Magnitude = std::array<std::uint32_t, ExactSum::kLimbs + 1>;

int bit_length(const Magnitude& words) {
  for (std::size_t i = words.size(); i-- > 0;) {
    if (words[i] != 0) return static_cast<int>(32 * i) + static_cast<int>(std::bit_width(words[i]));
  }
  return 0;
}

bool bit(const Magnitude& words, int position) {
  const auto p = static_cast<std::size_t>(position);
  return (words[p / 32] >> (p % 32) & 1) != 0;
}

bool any_below(const Magnitude& words, int position) {
  for (int p = 0; p < position; ++p) {
    if (bit(words, p)) return true;
  }
  return false;
}

double round_to_nearest(const Magnitude& words) {
  const int length = bit_length(words);
  const int lowest = length - 53 > kSubnormalBit ? length - 53 : kSubnormalBit;
  std::uint64_t mantissa = 0;
  for (int p = length; p-- > lowest;) mantissa = mantissa << 1 | (bit(words, p) ? 1 : 0);
  const bool half = bit(words, lowest - 1);
  if (half && ((mantissa & 1) != 0 || any_below(words, lowest - 1))) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa), lowest + kLowestExponent);
}

}  // namespace

double pairwise_sum(std::span<const double> values) {
  if (values.size() <= kLeaf) {
    double sum = 0;
    for (const double v : values) sum += v;
    return sum;
  }
  const std::size_t half = values.size() / 2;
  return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
}

void ExactSum::add(double value) {
  STARLING_CHECK(std::isfinite(value));
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto biased = static_cast<unsigned>(bits >> 52 & 0x7FF);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t mantissa = biased == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  const unsigned position = (biased == 0 ? 0 : biased - 1) + kSubnormalBit;
  const std::int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  Wide shifted = static_cast<Wide>(mantissa) << (position % 32);
  for (std::size_t limb = position / 32; shifted != 0; ++limb, shifted >>= 32) {
    limbs_[limb] += sign * (static_cast<std::int64_t>(shifted) & kLimbMask);
  }
  if (++pending_ >= kPendingMax) propagate();
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum canonical = other;
  canonical.propagate();
  for (std::size_t i = 0; i < kLimbs; ++i) limbs_[i] += canonical.limbs_[i];
  if (++pending_ >= kPendingMax) propagate();
}

void ExactSum::propagate() {
  for (std::size_t i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> 32;
    limbs_[i] &= kLimbMask;
  }
  pending_ = 0;
}

double ExactSum::value() const {
  ExactSum sum = *this;
  sum.propagate();
  const bool negative = sum.limbs_.back() < 0;
  if (negative) {
    for (std::int64_t& limb : sum.limbs_) limb = -limb;
    sum.propagate();
  }
  Magnitude words;
  for (std::size_t i = 0; i < kLimbs; ++i) words[i] = static_cast<std::uint32_t>(sum.limbs_[i]);
  words[kLimbs] = static_cast<std::uint32_t>(sum.limbs_.back() >> 32);
  const double magnitude = round_to_nearest(words);
  return negative ? -magnitude : magnitude;
}

std::array<std::int64_t, ExactSum::kLimbs> ExactSum::limbs() const {
  ExactSum sum = *this;
  sum.propagate();
  return sum.limbs_;
}

ExactSum ExactSum::from_limbs(const std::array<std::int64_t, kLimbs>& limbs) {
  ExactSum sum;
  sum.limbs_ = limbs;
  sum.propagate();
  return sum;
}

}  // namespace starling::linalg
