// SPDX-License-Identifier: Apache-2.0
// The inner loops as a table of functions over raw pointers, compiled once per instruction set.
// This header includes nothing that has inline functions: the linker could merge a copy compiled
// for AVX-512 into baseline code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace starling::linalg {

// C[g, m, n] = keep * C + sum over o < outer, i < inner of A(g, m, o, i) * B(o, i, n). All strides
// in floats; B's and C's columns n are contiguous. Two summation indices and two row indices make
// the same loop serve x w, x^T w and convolutions of padded images.
struct Product {
  const float* a = nullptr;
  std::ptrdiff_t a_group = 0, a_row = 0, a_outer = 0, a_inner = 0;
  const float* b = nullptr;
  std::ptrdiff_t b_outer = 0, b_inner = 0;
  float* c = nullptr;
  std::ptrdiff_t c_group = 0, c_row = 0;
  std::size_t groups = 1, rows = 0, columns = 0, outer = 1, inner = 0;
  float keep = 0;               // 0: C is not read
  const float* bias = nullptr;  // [columns], added to every row; needs keep = 0
  const float* mask = nullptr;  // laid out as C: results where it is not positive become 0 (ReLU)
};

// y[m, n] = sum over k of x[m, k] * w[n, k] + bias[n], then max(0, y) if `relu`.
struct Affine {
  const float* x = nullptr;
  std::ptrdiff_t x_row = 0;
  const float* w = nullptr;
  std::ptrdiff_t w_row = 0;
  const float* bias = nullptr;  // [columns]
  float* y = nullptr;
  std::ptrdiff_t y_row = 0;
  std::size_t rows = 0, columns = 0, depth = 0;
  bool relu = false;
};

// Softmax cross-entropy of one row each of `logits` [rows, classes] (stable: the largest logit is
// subtracted first).
struct CrossEntropy {
  const float* logits = nullptr;
  const std::int32_t* labels = nullptr;
  std::size_t rows = 0, classes = 0;
  float* gradient = nullptr;  // [rows, classes] or null: scale * (softmax - one-hot); may be logits
  float scale = 1;
  double loss_sum = 0;        // out
  std::uint64_t correct = 0;  // out
};

// ReLU and a 2x2 max-pool of an image [2 height, 2 width, channels]; odd borders are cut off by the
// caller's strides. `choice` keeps which of the four won (the first, if equal), 4 where ReLU cut.
struct Pool {
  float* image = nullptr;
  std::ptrdiff_t image_row = 0;  // floats between two rows of pixels; pixels are `channels` apart
  float* pooled = nullptr;       // [height, width, channels] with these strides
  std::ptrdiff_t pooled_row = 0, pooled_column = 0, pooled_channel = 0;
  std::uint8_t* choice = nullptr;  // [height, width, channels]
  std::size_t height = 0, width = 0, channels = 0;
};

struct AdamStep {
  float* parameters = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  std::size_t size = 0;
  float first_beta = 0, second_beta = 0;
  // 1 - beta, computed in double: next to 1 a float is too coarse to be subtracted from 1 again.
  float first_gain = 0, second_gain = 0;
  float epsilon = 0;
  float step = 0;               // rate / (1 - beta1^t)
  float second_correction = 0;  // 1 / sqrt(1 - beta2^t)
  float decay = 0;              // L2: added to the gradient
  float decoupled = 1;          // AdamW: parameters are multiplied by this first
};

// out = base + sum over k < count of weights[k] * (others[k] - x): one node's part of a mixing. The
// differences are summed first, in the order of k and without fused operations, so that where all
// are equal out is base, and the bits are the same in every instruction set and however [0, size)
// is divided.
struct Mix {
  float* out = nullptr;         // [size]; may be base, x or none of them
  const float* base = nullptr;  // [size], or null: zero
  const float* x = nullptr;     // [size]
  const float* const* others = nullptr;
  const float* weights = nullptr;
  std::size_t count = 0;
  std::size_t size = 0;
};

// sum = sum over k < count of weights[k] * (others[k] - x), all in double: for sums over many
// steps.
struct MixWide {
  double* sum = nullptr;     // [size]
  const float* x = nullptr;  // [size]
  const float* const* others = nullptr;
  const float* weights = nullptr;
  std::size_t count = 0;
  std::size_t size = 0;
};

struct Kernels {
  const char* name;  // "v2", "v3", "v4", "generic"

  void (*multiply)(const Product&);
  void (*affine)(const Affine&);
  void (*cross_entropy)(CrossEntropy&);
  void (*pool_forward)(const Pool&);
  // Spreads `pooled` (gradients) to `image`, zero elsewhere.
  void (*pool_backward)(const Pool&);
  // sum[n] = keep * sum[n] + scale * sum over rows of x[row, n].
  void (*sum_rows)(const float* x, std::ptrdiff_t x_row, std::size_t rows, std::size_t columns,
                   float keep, float scale, float* sum);
  void (*scale)(float* x, std::size_t size, float factor);
  // y = keep * y + scale * x
  void (*accumulate)(float* y, float keep, const float* x, float scale, std::size_t size);
  // velocity = momentum * velocity + g; p -= rate * (velocity, or g + momentum * velocity), where
  // g = gradient + decay * p (torch.optim.SGD).
  void (*momentum)(float* p, const float* gradient, float* velocity, std::size_t size, float rate,
                   float momentum, float decay, bool nesterov);
  void (*adam)(const AdamStep&);
  void (*mix)(const Mix&);
  void (*mix_wide)(const MixWide&);
  // out = bytes / 255.0f, correctly rounded: the same bits in every instruction set.
  void (*expand_bytes)(const std::uint8_t* bytes, float* out, std::size_t size);
  double (*squared_norm)(const float* x, std::size_t size);
  // sums[i mod 8] += x[i]^2 in double: of a vector in pieces whose sizes, but the last, are
  // multiples of 8. ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)) of the sums is squared_norm.
  void (*add_squares)(double* sums, const float* x, std::size_t size);
  bool (*all_finite)(const float* x, std::size_t size);
  // The bits of the largest |x|; those of infinity or above where an element is not finite.
  std::int32_t (*largest_magnitude_bits)(const float* x, std::size_t size);

  // Exact sums; the same bits in every instruction set. sum += the integer nearest to factor * x
  // (halves to even). Requires: |factor * x| and the sums stay below 2^63; factor is normal.
  void (*add_fixed)(std::int64_t* sum, const float* x, std::size_t size, double factor);
  // The same integer as high * 2^51 + low with |low| <= 2^50. Requires: |factor * x| < 2^102.
  void (*add_fixed_wide)(std::int64_t* high, std::int64_t* low, const float* x, std::size_t size,
                         double factor);
  // out = sum * unit / divisor, each step rounded; out may be the memory of sum.
  void (*fixed_to_double)(const std::int64_t* sum, double* out, std::size_t size, double unit,
                          double divisor);
};

}  // namespace starling::linalg
