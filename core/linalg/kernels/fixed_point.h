// SPDX-License-Identifier: Apache-2.0
// The kernels of exact sums in fixed point: integers of each term, added without rounding. Every
// instruction set rounds the same products to the same integers.
#pragma once

#include "core/linalg/kernel_table.h"
#include "core/linalg/kernels/vec.h"

namespace starling::linalg::STARLING_ISA {
namespace {

// Adding 1.5 * 2^52 rounds a double of magnitude below 2^51 to an integer, which then stands in
// the low bits of the representation: no conversion instruction is needed. Adding 2^51 times as
// much rounds one below 2^102 to a multiple of 2^51.
constexpr double kLowShift = 0x1.8p52;
constexpr double kHighShift = 0x1.8p103;

STARLING_INLINE std::uint64_t bits_of(double value) {
  std::uint64_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

// The nearest integer to a double, as high * 2^51 + low, each beside the bits of its shift.
struct ShiftedLimbs {
  std::uint64_t high, low;
};

STARLING_INLINE ShiftedLimbs limbs_of(double term) {
  const double high = term + kHighShift;
  const double rest = term - (high - kHighShift);
  return {bits_of(high), bits_of(rest + kLowShift)};
}

#if defined(__AVX512DQ__)

STARLING_INLINE __m512i nearest(__m256 values, __m512d factors) {
  // With a mask: the plain form warns in g++ 12 (bug 105593).
  const __m512d wide = _mm512_maskz_cvtps_pd(0xFF, values);
  return _mm512_cvtpd_epi64(_mm512_mul_pd(wide, factors));
}

inline void add_fixed(std::int64_t* sum, const float* x, std::size_t size, double factor) {
  const __m512d factors = _mm512_set1_pd(factor);
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const __m512i terms = nearest(_mm256_loadu_ps(x + i), factors);
    _mm512_storeu_si512(sum + i, _mm512_add_epi64(_mm512_loadu_si512(sum + i), terms));
  }
  if (i == size) return;
  const auto rest = static_cast<__mmask8>((1U << (size - i)) - 1);
  const __m512i terms = nearest(_mm256_maskz_loadu_ps(rest, x + i), factors);
  _mm512_mask_storeu_epi64(sum + i, rest,
                           _mm512_add_epi64(_mm512_maskz_loadu_epi64(rest, sum + i), terms));
}

#else

inline void add_fixed(std::int64_t* __restrict sum, const float* __restrict x, std::size_t size,
                      double factor) {
  for (std::size_t i = 0; i < size; ++i) {
    const ShiftedLimbs term = limbs_of(static_cast<double>(x[i]) * factor);
    // All bits of the shift are moved out of the high limb. Unsigned, because limbs are signed.
    const std::uint64_t both = (term.high << 51) + term.low - bits_of(kLowShift);
    sum[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum[i]) + both);
  }
}

#endif

inline void add_fixed_wide(std::int64_t* __restrict high, std::int64_t* __restrict low,
                           const float* __restrict x, std::size_t size, double factor) {
  for (std::size_t i = 0; i < size; ++i) {
    const ShiftedLimbs term = limbs_of(static_cast<double>(x[i]) * factor);
    high[i] += static_cast<std::int64_t>(term.high - bits_of(kHighShift));
    low[i] += static_cast<std::int64_t>(term.low - bits_of(kLowShift));
  }
}

// Not restrict: the result may take the place of the sum.
inline void fixed_to_double(const std::int64_t* sum, double* out, std::size_t size, double unit,
                            double divisor) {
  std::size_t i = 0;
#if defined(__AVX512DQ__)
  const __m512d units = _mm512_set1_pd(unit);
  const __m512d divisors = _mm512_set1_pd(divisor);
  for (; i + 8 <= size; i += 8) {
    const __m512d values = _mm512_cvtepi64_pd(_mm512_loadu_si512(sum + i));
    _mm512_storeu_pd(out + i, _mm512_div_pd(_mm512_mul_pd(values, units), divisors));
  }
#endif
  for (; i < size; ++i) {
    std::int64_t value;  // by bytes, because out may be the same memory
    __builtin_memcpy(&value, sum + i, sizeof value);
    const double quotient = static_cast<double>(value) * unit / divisor;
    __builtin_memcpy(out + i, &quotient, sizeof quotient);
  }
}

// The bits of |x| grow with |x|; infinity and NaN lie above every finite value. Signed, because
// SSE2 compares no other 32-bit integers.
inline std::int32_t largest_magnitude_bits(const float* x, std::size_t size) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < size; ++i) {
    std::int32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

}  // namespace
}  // namespace starling::linalg::STARLING_ISA
