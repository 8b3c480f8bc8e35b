// SPDX-License-Identifier: Apache-2.0
// Kernels::pool_forward and pool_backward.
#pragma once

#include "core/linalg/kernel_table.h"
#include "core/linalg/kernels/vec.h"

namespace starling::linalg::STARLING_ISA {
namespace {

inline constexpr std::int32_t kCut = 4;  // ReLU made it 0: no gradient

struct Window {
  float* pixel[4];
  float* pooled;
  std::uint8_t* choice;
};

STARLING_INLINE Window window_at(const Pool& p, std::size_t y, std::size_t x) {
  const auto row = static_cast<std::ptrdiff_t>(y);
  const auto column = static_cast<std::ptrdiff_t>(x);
  const auto channels = static_cast<std::ptrdiff_t>(p.channels);
  float* first = p.image + 2 * row * p.image_row + 2 * column * channels;
  return {{first, first + channels, first + p.image_row, first + p.image_row + channels},
          p.pooled + row * p.pooled_row + column * p.pooled_column,
          p.choice + (y * p.width + x) * p.channels};
}

STARLING_INLINE void pool_one(const Window& w, std::size_t channel, std::ptrdiff_t pooled_at) {
  float best = w.pixel[0][channel];
  std::int32_t choice = 0;
  for (std::int32_t i = 1; i < 4; ++i) {
    const float v = w.pixel[i][channel];
    choice = v > best ? i : choice;
    best = v > best ? v : best;
  }
  w.choice[channel] = static_cast<std::uint8_t>(best > 0 ? choice : kCut);
  w.pooled[pooled_at] = best > 0 ? best : 0;
}

STARLING_INLINE void pool_window(const Pool& p, const Window& w) {
  std::size_t c = 0;
  for (; c + kLanes <= p.channels; c += kLanes) {
    Vec best = load(w.pixel[0] + c);
    IntVec choice = {};
    STARLING_UNROLL for (std::int32_t i = 1; i < 4; ++i) {
      const Vec v = load(w.pixel[i] + c);
      choice = v > best ? IntVec{} + i : choice;
      best = select(v > best, v, best);
    }
    choice = best > zero() ? choice : IntVec{} + kCut;
    best = select(best > zero(), best, zero());
    *reinterpret_cast<UnalignedByteVec*>(w.choice + c) = __builtin_convertvector(choice, ByteVec);
    float lanes[kLanes];
    float* contiguous = p.pooled_channel == 1 ? w.pooled + c : lanes;
    store(contiguous, best);
    if (p.pooled_channel == 1) continue;
    for (int i = 0; i < kLanes; ++i) {
      w.pooled[(static_cast<std::ptrdiff_t>(c) + i) * p.pooled_channel] = lanes[i];
    }
  }
  for (; c < p.channels; ++c) pool_one(w, c, static_cast<std::ptrdiff_t>(c) * p.pooled_channel);
}

STARLING_INLINE void spread_window(const Pool& p, const Window& w) {
  std::size_t c = 0;
  for (; c + kLanes <= p.channels; c += kLanes) {
    Vec gradient;
    if (p.pooled_channel == 1) {
      gradient = load(w.pooled + c);
    } else {
      float lanes[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        lanes[i] = w.pooled[(static_cast<std::ptrdiff_t>(c) + i) * p.pooled_channel];
      }
      gradient = load(lanes);
    }
    const ByteVec bytes = *reinterpret_cast<const UnalignedByteVec*>(w.choice + c);
    const IntVec choice = __builtin_convertvector(bytes, IntVec);
    STARLING_UNROLL for (std::int32_t i = 0; i < 4; ++i) {
      store(w.pixel[i] + c, select(choice == IntVec{} + i, gradient, zero()));
    }
  }
  for (; c < p.channels; ++c) {
    const float gradient = w.pooled[static_cast<std::ptrdiff_t>(c) * p.pooled_channel];
    for (int i = 0; i < 4; ++i) w.pixel[i][c] = w.choice[c] == i ? gradient : 0;
  }
}

inline void pool_forward(const Pool& p) {
  for (std::size_t y = 0; y < p.height; ++y) {
    for (std::size_t x = 0; x < p.width; ++x) pool_window(p, window_at(p, y, x));
  }
}

inline void pool_backward(const Pool& p) {
  for (std::size_t y = 0; y < p.height; ++y) {
    for (std::size_t x = 0; x < p.width; ++x) spread_window(p, window_at(p, y, x));
  }
}

}  // namespace
}  // namespace starling::linalg::STARLING_ISA
