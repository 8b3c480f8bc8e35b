// SPDX-License-Identifier: Apache-2.0
// Weighted sums of float vectors that do not depend on order: two integer limbs per element, at
// scales fixed before the first addition, so that integer additions never round or overflow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/base/page_block.h"

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
  // What an addition is exact to.
  double resolution() const;
  friend bool operator==(const FixedPointScale&, const FixedPointScale&) = default;

 private:
  friend class FixedPointSum;
  explicit FixedPointScale(int high_exponent) : high_exponent_(high_exponent) {}
  int high_exponent_;
};

// A value: it can be copied, merged, stored and sent while the sum is in progress.
//
// In memory an element is one integer of 64 bits, high * 2^51 + low, as long as 62 bits hold the
// sums of its tile (with the default bounds, up to 512 in magnitude), else two, high and low; the
// second takes memory only for the tiles that need it. An addition moves 20 bytes an element in
// the first case and 36 in the second.
class FixedPointSum {
 public:
  FixedPointSum(std::size_t elements, FixedPointScale scale);
  FixedPointSum(const FixedPointSum& other);
  FixedPointSum(FixedPointSum&&) noexcept = default;
  FixedPointSum& operator=(const FixedPointSum& other) { return *this = FixedPointSum(other); }
  FixedPointSum& operator=(FixedPointSum&&) noexcept = default;

  std::size_t elements() const { return elements_; }
  FixedPointScale scale() const { return scale_; }
  // What the integers take.
  std::size_t memory_bytes() const;

  // sum[first, first + size) += weight * values. Requires: the range lies within the sum; values
  // and weight within the scale's bounds; of each element at most as many additions as the scale
  // is made for. O(size).
  void add(double weight, std::span<const float> values, std::size_t first = 0);
  // sum += other. Requires: same size and scale.
  void merge(const FixedPointSum& other);
  // sum[i] / divisor in double, in the memory of the sum: elements() of them. Requires: divisor >
  // 0.
  PageBlock divide(double divisor) &&;

  // Little-endian; the same sum gives the same bytes, however it was reached.
  Bytes serialize();
  [[nodiscard]] static Result<FixedPointSum> deserialize(ByteView bytes, std::size_t elements_max);

 private:
  struct Tile {
    double bound = 0;  // no sum has a larger magnitude; of a tile that is not wide
    std::uint32_t additions_since_carry = 0;  // of a wide tile
    bool wide = false;
  };
  struct Range {
    std::size_t begin, size;
  };

  std::int64_t* low() const { return reinterpret_cast<std::int64_t*>(low_.data()); }
  std::int64_t* high() const { return reinterpret_cast<std::int64_t*>(high_.data()); }
  Range range_of(std::size_t tile) const;
  void add_to_tile(std::size_t tile, double factor, std::size_t first,
                   std::span<const float> values);
  void make_room(std::size_t tile, double term);
  void widen(std::size_t tile);
  void count_additions(std::size_t tile, std::uint32_t additions);
  void carry(std::size_t tile);
  void divide_tile(std::size_t tile, double divisor, double* out);

  FixedPointScale scale_;
  std::size_t elements_;
  std::vector<Tile> tiles_;
  PageBlock low_;   // the sums of the tiles that are not wide, the low limbs of the others
  PageBlock high_;  // the high limbs of wide tiles; empty until there is one
};

}  // namespace starling::aggregate
