// SPDX-License-Identifier: Apache-2.0
// The kernels that pass once over flat vectors: optimizer steps, sums of rows, norms.
#pragma once

#include "core/linalg/kernel_table.h"
#include "core/linalg/kernels/vec.h"

namespace starling::linalg::STARLING_ISA {
namespace {

inline void sum_rows(const float* x, std::ptrdiff_t x_row, std::size_t rows, std::size_t columns,
                     float keep, float scale, float* sum) {
  for (std::size_t n = 0; n < columns; n += kLanes) {
    const std::size_t part = columns - n < kLanes ? columns - n : kLanes;
    Vec total = zero();
    if (part == kLanes) {
      for (std::size_t m = 0; m < rows; ++m) {
        total += load(x + static_cast<std::ptrdiff_t>(m) * x_row + n);
      }
    } else {
      for (std::size_t m = 0; m < rows; ++m) {
        total += load_part(x + static_cast<std::ptrdiff_t>(m) * x_row + n, part);
      }
    }
    const Vec old = keep == 0 ? zero() : load_part(sum + n, part) * broadcast(keep);
    store_part(sum + n, fma(total, broadcast(scale), old), part);
  }
}

inline void scale(float* x, std::size_t size, float factor) {
  for (std::size_t i = 0; i < size; ++i) x[i] *= factor;
}

inline void accumulate(float* __restrict y, float keep, const float* __restrict x, float factor,
                       std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) y[i] = keep * y[i] + factor * x[i];
}

inline void momentum(float* __restrict p, const float* __restrict gradient,
                     float* __restrict velocity, std::size_t size, float rate, float mu,
                     float decay, bool nesterov) {
  const float ahead = nesterov ? mu : 0;
  const float own = nesterov ? 1 : 0;
  const float whole = nesterov ? 0 : 1;
  for (std::size_t i = 0; i < size; ++i) {
    const float g = gradient[i] + decay * p[i];
    const float v = mu * velocity[i] + g;
    velocity[i] = v;
    p[i] -= rate * (own * g + (ahead + whole) * v);
  }
}

// beta * from + gain * to. A beta close to 1 is too coarse to be a factor; where the gain is the
// larger one, the difference would lose a small `to` beside a large `from`.
STARLING_INLINE float blend(float from, float to, float beta, float gain) {
  return gain > 0.5F ? beta * from + gain * to : from + gain * (to - from);
}

inline void adam(const AdamStep& s) {
  float* __restrict p = s.parameters;
  const float* __restrict gradient = s.gradient;
  float* __restrict first = s.first;
  float* __restrict second = s.second;
  for (std::size_t i = 0; i < s.size; ++i) {
    const float g = gradient[i] + s.decay * p[i];
    const float m = blend(first[i], g, s.first_beta, s.first_gain);
    const float v = blend(second[i], g * g, s.second_beta, s.second_gain);
    first[i] = m;
    second[i] = v;
    const float root = __builtin_sqrtf(v) * s.second_correction + s.epsilon;
    p[i] = s.decoupled * p[i] - s.step * (m / root);
  }
}

// All neighbours of a strip before the next strip: x and the sums stay in registers.
template <int kStrip, bool kPart>
STARLING_INLINE void mix_strip(const Mix& m, std::size_t at, std::size_t count) {
  Vec x[kStrip];
  Vec sum[kStrip];
  STARLING_UNROLL for (int v = 0; v < kStrip; ++v) {
    x[v] = load_either<kPart>(m.x + at + v * kLanes, count);
    sum[v] = zero();
  }
  for (std::size_t k = 0; k < m.count; ++k) {
    const Vec weight = broadcast(m.weights[k]);
    const float* const other = m.others[k] + at;
    STARLING_UNROLL for (int v = 0; v < kStrip; ++v) {
      // More streams than the hardware follows by itself.
      __builtin_prefetch(other + (kStrip + v) * kLanes);
      sum[v] += weight * (load_either<kPart>(other + v * kLanes, count) - x[v]);
    }
  }
  STARLING_UNROLL for (int v = 0; v < kStrip; ++v) {
    if (m.base != nullptr) sum[v] += load_either<kPart>(m.base + at + v * kLanes, count);
    store_either<kPart>(m.out + at + v * kLanes, sum[v], count);
  }
}

inline void mix(const Mix& m) {
  constexpr int kStrip = 6;  // with x, the sums and a weight: 13 of 16 registers
  std::size_t at = 0;
  for (; at + kStrip * kLanes <= m.size; at += kStrip * kLanes) mix_strip<kStrip, false>(m, at, 0);
  for (; at + kLanes <= m.size; at += kLanes) mix_strip<1, false>(m, at, 0);
  if (at < m.size) mix_strip<1, true>(m, at, m.size - at);
}

inline void mix_wide(const MixWide& m) {
  double* __restrict sum = m.sum;
  const float* __restrict x = m.x;
  for (std::size_t i = 0; i < m.size; ++i) sum[i] = 0;
  for (std::size_t k = 0; k < m.count; ++k) {
    const float* __restrict other = m.others[k];
    const double weight = static_cast<double>(m.weights[k]);
    for (std::size_t i = 0; i < m.size; ++i) {
      sum[i] += weight * (static_cast<double>(other[i]) - static_cast<double>(x[i]));
    }
  }
}

// 1 / 255 in two floats makes the quotient of each of the 256 bytes correctly rounded without a
// division; a test holds it against one.
inline void expand_bytes(const std::uint8_t* __restrict bytes, float* __restrict out,
                         std::size_t size) {
#if defined(__FMA__) || defined(__aarch64__)
  constexpr float kHigh = 0x1.010102p-8F;
  constexpr float kLow = -0x1.fdfdfep-33F;
  for (std::size_t i = 0; i < size; ++i) {
    const auto value = static_cast<float>(bytes[i]);
    out[i] = __builtin_fmaf(value, kHigh, value * kLow);
  }
#else
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<float>(bytes[i]) / 255.0F;
#endif
}

// Eight sums by index modulo 8: the same bits in every instruction set.
inline void add_squares(double* sums, const float* x, std::size_t size) {
  double sum[8];
  for (int lane = 0; lane < 8; ++lane) sum[lane] = sums[lane];
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      sum[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
    }
  }
  for (int lane = 0; i < size; ++i, ++lane) {
    sum[lane] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  for (int lane = 0; lane < 8; ++lane) sums[lane] = sum[lane];
}

// The eight sums in the order of a tree.
inline double squared_norm(const float* x, std::size_t size) {
  double sum[8] = {};
  add_squares(sum, x, size);
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

inline bool all_finite(const float* x, std::size_t size) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < size; ++i) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof bits);
    bad |= (bits & 0x7F800000U) == 0x7F800000U ? 1U : 0U;
  }
  return bad == 0;
}

}  // namespace
}  // namespace starling::linalg::STARLING_ISA
