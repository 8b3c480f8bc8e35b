// SPDX-License-Identifier: Apache-2.0
// The table of one instruction set. Included by each kernel_set_*.cpp, which says which.
#pragma once

#include "core/linalg/kernels/affine.h"
#include "core/linalg/kernels/cross_entropy.h"
#include "core/linalg/kernels/elementwise.h"
#include "core/linalg/kernels/fixed_point.h"
#include "core/linalg/kernels/pool.h"
#include "core/linalg/kernels/product.h"

#define STARLING_TEXT_INNER(x) #x
#define STARLING_TEXT(x) STARLING_TEXT_INNER(x)

namespace starling::linalg::STARLING_ISA {
namespace {

constexpr Kernels make_kernels() {
  return {.name = STARLING_TEXT(STARLING_ISA),
          .multiply = multiply,
          .affine = affine,
          .cross_entropy = cross_entropy,
          .pool_forward = pool_forward,
          .pool_backward = pool_backward,
          .sum_rows = sum_rows,
          .scale = scale,
          .accumulate = accumulate,
          .momentum = momentum,
          .adam = adam,
          .mix = mix,
          .mix_wide = mix_wide,
          .expand_bytes = expand_bytes,
          .squared_norm = squared_norm,
          .add_squares = add_squares,
          .all_finite = all_finite,
          .largest_magnitude_bits = largest_magnitude_bits,
          .add_fixed = add_fixed,
          .add_fixed_wide = add_fixed_wide,
          .fixed_to_double = fixed_to_double};
}

}  // namespace
}  // namespace starling::linalg::STARLING_ISA
