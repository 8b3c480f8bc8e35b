// SPDX-License-Identifier: Apache-2.0
// Kernels::cross_entropy, with an exponential of its own: libm's chooses its code by processor.
#pragma once

#include "core/linalg/kernel_table.h"
#include "core/linalg/kernels/vec.h"

namespace starling::linalg::STARLING_ISA {
namespace {

// exp(x) for x <= 0 to about 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor to r^7 (Cody and
// Waite's two-part ln 2). 0 where the result would be subnormal; NaN stays NaN.
STARLING_INLINE Vec exp_of(Vec x) {
  const Vec shift = broadcast(0x1.8p23F);  // adding it rounds to an integer in the lowest bits
  const Vec shifted = fma(x, broadcast(0x1.715476p0F), shift);
  const Vec n = shifted - shift;
  Vec r = fma(n, broadcast(-0x1.62e4p-1F), x);
  r = fma(n, broadcast(-0x1.7f7d1cp-20F), r);
  Vec e = broadcast(1.0F / 5040);
  e = fma(e, r, broadcast(1.0F / 720));
  e = fma(e, r, broadcast(1.0F / 120));
  e = fma(e, r, broadcast(1.0F / 24));
  e = fma(e, r, broadcast(1.0F / 6));
  e = fma(e, r, broadcast(0.5F));
  e = fma(e, r, broadcast(1));
  e = fma(e, r, broadcast(1));
  const IntVec power = ((IntVec)shifted - (IntVec)shift) << 23;  // onto the exponent of e
  const Vec scaled = (Vec)((IntVec)e + power);
  return select(x < broadcast(-87), zero(), x == x ? scaled : x);
}

STARLING_INLINE float largest_of(const float* z, std::size_t count) {
  Vec best = broadcast(z[0]);
  std::size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) best = larger(load(z + j), best);
  const std::size_t rest = count - j;
  if (rest > 0) best = larger(first_of(load_part(z + j, rest), rest, z[0]), best);
  return max_of(best);
}

// The sum of exp(z - largest); each term into `terms` unless null.
STARLING_INLINE float sum_exp(const float* z, std::size_t count, float largest, float* terms) {
  Vec sum = zero();
  const Vec top = broadcast(largest);
  std::size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    const Vec e = exp_of(load(z + j) - top);
    if (terms != nullptr) store(terms + j, e);
    sum += e;
  }
  if (j < count) {
    const Vec e = first_of(exp_of(load_part(z + j, count - j) - top), count - j, 0);
    if (terms != nullptr) store_part(terms + j, e, count - j);
    sum += e;
  }
  return sum_of(sum);
}

STARLING_INLINE bool is_first_largest(const float* z, std::size_t label, float largest) {
  if (!(z[label] == largest)) return false;
  for (std::size_t j = 0; j < label; ++j) {
    if (z[j] == largest) return false;
  }
  return true;
}

inline void cross_entropy(CrossEntropy& p) {
  p.loss_sum = 0;
  p.correct = 0;
  for (std::size_t row = 0; row < p.rows; ++row) {
    const float* z = p.logits + row * p.classes;
    float* g = p.gradient == nullptr ? nullptr : p.gradient + row * p.classes;
    const auto label = static_cast<std::size_t>(p.labels[row]);
    const float largest = largest_of(z, p.classes);
    const double below = static_cast<double>(largest) - static_cast<double>(z[label]);
    const float sum = sum_exp(z, p.classes, largest, g);
    const bool is_number = sum == sum;
    p.correct += is_number && is_first_largest(z, label, largest) ? 1 : 0;
    p.loss_sum += __builtin_log(static_cast<double>(sum)) + below;
    if (g == nullptr) continue;
    const float factor = p.scale / sum;
    for (std::size_t j = 0; j < p.classes; ++j) g[j] *= factor;
    g[label] -= p.scale;
  }
}

}  // namespace
}  // namespace starling::linalg::STARLING_ISA
