// SPDX-License-Identifier: Apache-2.0
// Sums that do not depend on luck: in a fixed order (pairwise), or exact and therefore in any order
// (Kulisch's long accumulator; Neal, "Fast exact summation using small and large
// superaccumulators", 2015, from which the 32-bit limbs with deferred carries are taken).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::linalg {

// Pairwise summation: a fixed order, error O(eps log n) (Higham 2002, section 4.2).
double pairwise_sum(std::span<const double> values);

// The exact sum of finite doubles of the whole range. Adding and merging commute: the state, not
// only the value, is the same for every order and grouping. 552 bytes; a value.
class ExactSum {
 public:
  // Limb i weighs 2^(32 i - 1088); the last is signed and holds the carries of 2^63 additions.
  static constexpr std::size_t kLimbs = 68;

  // Requires: value is finite.
  void add(double value);
  void merge(const ExactSum& other);

  // Correctly rounded (to nearest, ties to even); infinite where the sum exceeds every double.
  double value() const;

  // The canonical state: sum over i of limbs[i] * 2^(32 i - 1088), every limb but the last in
  // [0, 2^32). Equal sums have equal limbs.
  std::array<std::int64_t, kLimbs> limbs() const;
  // Requires: `limbs` came from limbs().
  static ExactSum from_limbs(const std::array<std::int64_t, kLimbs>& limbs);

  friend bool operator==(const ExactSum& a, const ExactSum& b) { return a.limbs() == b.limbs(); }

 private:
  void propagate();

  std::array<std::int64_t, kLimbs> limbs_{};
  std::uint32_t pending_ = 0;  // additions since the last propagation of carries
};

}  // namespace starling::linalg
