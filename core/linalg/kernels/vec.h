// SPDX-License-Identifier: Apache-2.0
// One vector of floats in the instruction set that this file is compiled for. Included only by the
// kernel_set_*.cpp; everything has internal linkage and is inlined, and nothing of the standard
// library may be used here: its inline functions would be shared with baseline code.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define STARLING_INLINE [[gnu::always_inline]] inline
#if defined(__clang__)
#define STARLING_UNROLL _Pragma("clang loop unroll(full)")
#else
#define STARLING_UNROLL _Pragma("GCC unroll 32")
#endif

namespace starling::linalg::STARLING_ISA {
namespace {

#if defined(__AVX512F__)
using Vec = __m512;
inline constexpr int kLanes = 16;
inline constexpr int kProductRows =
    14;  // 28 accumulators, 2 columns, 1 broadcast: 31 of 32 registers
inline constexpr int kAffineRows = 3;  // 24 accumulators, 3 rows, 1 column
inline constexpr int kAffineColumns = 8;
#elif defined(__AVX__)
using Vec = __m256;
inline constexpr int kLanes = 8;
inline constexpr int kProductRows = 6;  // 12 accumulators, 2 columns, 1 broadcast of 16 registers
inline constexpr int kAffineRows = 3;
inline constexpr int kAffineColumns = 4;
#elif defined(__x86_64__)
using Vec = __m128;
inline constexpr int kLanes = 4;
inline constexpr int kProductRows = 4;
inline constexpr int kAffineRows = 2;
inline constexpr int kAffineColumns = 4;
#elif defined(__aarch64__)
using Vec = float32x4_t;
inline constexpr int kLanes = 4;
inline constexpr int kProductRows = 12;  // 24 accumulators of 32 registers
inline constexpr int kAffineRows = 5;
inline constexpr int kAffineColumns = 4;
#else
using Vec [[gnu::vector_size(16)]] = float;
inline constexpr int kLanes = 4;
inline constexpr int kProductRows = 4;
inline constexpr int kAffineRows = 2;
inline constexpr int kAffineColumns = 4;
#endif

using UnalignedVec [[gnu::vector_size(kLanes * 4), gnu::aligned(4), gnu::may_alias]] = float;
using IntVec [[gnu::vector_size(kLanes * 4)]] = std::int32_t;
using ByteVec [[gnu::vector_size(kLanes)]] = std::uint8_t;
using UnalignedByteVec [[gnu::vector_size(kLanes), gnu::aligned(1), gnu::may_alias]] = std::uint8_t;

STARLING_INLINE Vec load(const float* p) {
  return (Vec) * reinterpret_cast<const UnalignedVec*>(p);
}
STARLING_INLINE void store(float* p, Vec v) {
  *reinterpret_cast<UnalignedVec*>(p) = (UnalignedVec)v;
}

#if defined(__AVX512F__)
STARLING_INLINE Vec broadcast(float x) { return _mm512_set1_ps(x); }
STARLING_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
STARLING_INLINE __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>((1U << count) - 1);
}
// The first `count` (0 ... kLanes) lanes; the others read as 0 and are not written.
STARLING_INLINE Vec load_part(const float* p, std::size_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), p);
}
STARLING_INLINE void store_part(float* p, Vec v, std::size_t count) {
  _mm512_mask_storeu_ps(p, first_lanes(count), v);
}
#else
#if defined(__AVX__)
STARLING_INLINE Vec broadcast(float x) { return _mm256_set1_ps(x); }
#elif defined(__x86_64__)
STARLING_INLINE Vec broadcast(float x) { return _mm_set1_ps(x); }
#elif defined(__aarch64__)
STARLING_INLINE Vec broadcast(float x) { return vdupq_n_f32(x); }
#else
STARLING_INLINE Vec broadcast(float x) { return Vec{x, x, x, x}; }
#endif
#if defined(__FMA__)
STARLING_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(__aarch64__)
STARLING_INLINE Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
#else
STARLING_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
#endif
STARLING_INLINE Vec load_part(const float* p, std::size_t count) {
  float lanes[kLanes] = {};
  for (std::size_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
}
STARLING_INLINE void store_part(float* p, Vec v, std::size_t count) {
  float lanes[kLanes];
  store(lanes, v);
  for (std::size_t i = 0; i < count; ++i) p[i] = lanes[i];
}
#endif

template <bool kPart>
STARLING_INLINE Vec load_either(const float* p, std::size_t count) {
  if constexpr (kPart) return load_part(p, count);
  return load(p);
}
template <bool kPart>
STARLING_INLINE void store_either(float* p, Vec v, std::size_t count) {
  if constexpr (kPart) {
    store_part(p, v, count);
  } else {
    store(p, v);
  }
}

STARLING_INLINE Vec zero() { return Vec{}; }

// Loads once into a register what several FMAs use; GCC would load it again for each.
STARLING_INLINE Vec in_register(Vec v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

// Lane by lane: condition ? yes : no, for the result of a comparison of two Vec.
template <class Condition>
STARLING_INLINE Vec select(Condition condition, Vec yes, Vec no) {
  return condition ? yes : no;
}

// The sums of the lanes of kAffineColumns vectors, in the first lanes of the result.
STARLING_INLINE Vec lane_sums(const Vec (&v)[kAffineColumns]) {
#if defined(__AVX512F__)
  __m256 half[8];
  STARLING_UNROLL for (int i = 0; i < 8; ++i) {
    half[i] = __builtin_shufflevector(v[i], v[i], 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(v[i], v[i], 8, 9, 10, 11, 12, 13, 14, 15);
  }
  const __m256 low =
      _mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]), _mm256_hadd_ps(half[2], half[3]));
  const __m256 high =
      _mm256_hadd_ps(_mm256_hadd_ps(half[4], half[5]), _mm256_hadd_ps(half[6], half[7]));
  const __m256 sums =
      _mm256_permute2f128_ps(low, high, 0x20) + _mm256_permute2f128_ps(low, high, 0x31);
  return __builtin_shufflevector(sums, sums, 0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1,
                                 -1);
#elif defined(__AVX__)
  const __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  const __m128 added = __builtin_shufflevector(sums, sums, 0, 1, 2, 3) +
                       __builtin_shufflevector(sums, sums, 4, 5, 6, 7);
  return __builtin_shufflevector(added, added, 0, 1, 2, 3, -1, -1, -1, -1);
#elif defined(__SSE3__)
  return _mm_hadd_ps(_mm_hadd_ps(v[0], v[1]), _mm_hadd_ps(v[2], v[3]));
#elif defined(__aarch64__)
  return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
#else
  Vec sums;
  for (int i = 0; i < 4; ++i) sums[i] = (v[i][0] + v[i][1]) + (v[i][2] + v[i][3]);
  return sums;
#endif
}

// Lane i becomes lane i + kBy, cyclically; kBy is a power of two.
template <int kBy>
STARLING_INLINE Vec rotate(Vec v) {
#if defined(__AVX512F__)
  constexpr int kEnd = 15;
  return __builtin_shufflevector(v, v, kBy, (kBy + 1) & kEnd, (kBy + 2) & kEnd, (kBy + 3) & kEnd,
                                 (kBy + 4) & kEnd, (kBy + 5) & kEnd, (kBy + 6) & kEnd,
                                 (kBy + 7) & kEnd, (kBy + 8) & kEnd, (kBy + 9) & kEnd,
                                 (kBy + 10) & kEnd, (kBy + 11) & kEnd, (kBy + 12) & kEnd,
                                 (kBy + 13) & kEnd, (kBy + 14) & kEnd, (kBy + 15) & kEnd);
#elif defined(__AVX__)
  constexpr int kEnd = 7;
  return __builtin_shufflevector(v, v, kBy, (kBy + 1) & kEnd, (kBy + 2) & kEnd, (kBy + 3) & kEnd,
                                 (kBy + 4) & kEnd, (kBy + 5) & kEnd, (kBy + 6) & kEnd,
                                 (kBy + 7) & kEnd);
#else
  constexpr int kEnd = 3;
  return __builtin_shufflevector(v, v, kBy, (kBy + 1) & kEnd, (kBy + 2) & kEnd, (kBy + 3) & kEnd);
#endif
}

// Sum and maximum of all lanes, in the order of a tree.
STARLING_INLINE float sum_of(Vec v) {
  if constexpr (kLanes > 8) v += rotate<8 % kLanes>(v);
  if constexpr (kLanes > 4) v += rotate<4 % kLanes>(v);
  v += rotate<2>(v);
  v += rotate<1>(v);
  return v[0];
}
STARLING_INLINE Vec larger(Vec a, Vec b) { return select(a > b, a, b); }
STARLING_INLINE float max_of(Vec v) {
  if constexpr (kLanes > 8) v = larger(rotate<8 % kLanes>(v), v);
  if constexpr (kLanes > 4) v = larger(rotate<4 % kLanes>(v), v);
  v = larger(rotate<2>(v), v);
  return larger(rotate<1>(v), v)[0];
}

// The first `count` lanes of `v`, `rest` in the others.
STARLING_INLINE Vec first_of(Vec v, std::size_t count, float rest) {
  static const float kIndex[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return select(load(kIndex) < broadcast(static_cast<float>(count)), v, broadcast(rest));
}

// Splits `count` into equal parts (to within one) of at most `part_max`.
struct Split {
  std::size_t parts, size, larger;  // the first `larger` parts have size + 1
  STARLING_INLINE Split(std::size_t count, std::size_t part_max)
      : parts((count + part_max - 1) / part_max),
        size(parts == 0 ? 0 : count / parts),
        larger(parts == 0 ? 0 : count % parts) {}
  STARLING_INLINE std::size_t operator[](std::size_t i) const { return size + (i < larger); }
};

}  // namespace
}  // namespace starling::linalg::STARLING_ISA
