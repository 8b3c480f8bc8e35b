// SPDX-License-Identifier: Apache-2.0
// Weighted sums of float vectors that do not depend on order: two integer limbs per element, at
// scales fixed before the first addition, so that integer additions never round or overflow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"

namespace starling::aggregate {

// p = w * x, rounded to double, is split as p * 2^h = high + low * 2^-51 with high the nearest
// integer and low rounded once to an integer. With |w x| <= P and at most N additions,
//   h = min(50, 62 - ceil(log2 N)) - ceil(log2 P)
// keeps |high| < 2^51 (exact in double) and sum |high| < 2^63. The result of an addition is thus
// exact to 2^-(h+52), whatever the order: with the default bounds (P = 2^48) 2^-54 absolute for up
// to 4096 additions, 2^-46 for a million. Wider bounds are taken down to 2^-44, then refused.
class FixedPointScale {
 public:
  // "bounds-too-wide" where the limits leave no usable scale. Requires: all positive and finite.
  [[nodiscard]] static Result<FixedPointScale> for_bounds(double value_max, double weight_max,
                                                          std::uint32_t contributions_max);
  int high_exponent() const { return high_exponent_; }
  friend bool operator==(const FixedPointScale&, const FixedPointScale&) = default;

 private:
  friend class FixedPointSum;
  explicit FixedPointScale(int high_exponent) : high_exponent_(high_exponent) {}
  int high_exponent_;
};

// A value: it can be copied, merged, stored and sent while the sum is in progress.
class FixedPointSum {
 public:
  FixedPointSum(std::size_t elements, FixedPointScale scale);

  std::size_t elements() const { return high_.size(); }
  FixedPointScale scale() const { return scale_; }

  // sum += weight * values. Requires: equal sizes; values and weight within the scale's bounds.
  // O(elements), no allocation.
  void add(double weight, std::span<const float> values);
  // sum += other. Requires: same size and scale.
  void merge(const FixedPointSum& other);
  // Carries, so that it can be read.
  void normalize();
  // out[i] = sum[begin + i] / divisor in double. Requires: normalize() since the last change;
  // begin + out.size() <= elements(); divisor > 0.
  void divide_into(double divisor, std::size_t begin, std::span<double> out) const;

  // Little-endian; the same sum gives the same bytes, however it was reached.
  Bytes serialize();
  [[nodiscard]] static Result<FixedPointSum> deserialize(ByteView bytes, std::size_t elements_max);

 private:
  FixedPointScale scale_;
  std::vector<std::int64_t> high_;
  std::vector<std::int64_t> low_;
  std::uint32_t additions_since_carry_ = 0;
};

}  // namespace starling::aggregate
