// SPDX-License-Identifier: Apache-2.0
// What Eigen reaches with -march=native on the products of a dense layer's training step.
#pragma once

#include <cstddef>

namespace starling::bench {

// One pass of y = x w^T, dx = dy w, w -= dy^T x. All row-major, dense.
struct EigenLayer {
  float* x;   // [rows, in]
  float* w;   // [out, in]
  float* y;   // [rows, out]
  float* dx;  // [rows, in], or null
  std::size_t rows, in, out;
};
void eigen_layer_step(const EigenLayer& layer);

}  // namespace starling::bench
