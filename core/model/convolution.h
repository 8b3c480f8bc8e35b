// SPDX-License-Identifier: Apache-2.0
// One convolution with zero padding that keeps the size, ReLU and a 2x2 max-pool, for one image at
// a time. Images are [height, width, channels] inside a border of zeros, so that a whole row of
// taps is contiguous and a convolution is a matrix product with overlapping rows: nothing is
// unrolled.
#pragma once

#include <cstdint>
#include <vector>

#include "core/linalg/aligned.h"
#include "core/linalg/kernels.h"
#include "core/model/model.h"

namespace starling::model {

struct ConvolutionShape {
  std::size_t in, out;        // channels
  std::size_t height, width;  // of the image, before pooling
  std::size_t kernel;         // odd

  std::size_t margin() const { return kernel / 2; }
  std::size_t padded_width() const { return width + 2 * margin(); }
  std::size_t padded_pixels() const { return (height + 2 * margin()) * padded_width(); }
  std::size_t pooled_height() const { return height / 2; }
  std::size_t pooled_width() const { return width / 2; }
  std::size_t pooled_pixels() const { return pooled_height() * pooled_width(); }
  std::size_t weights() const { return out * in * kernel * kernel; }
  // Of the first pixel inside the border, in pixels.
  std::size_t interior() const { return margin() * padded_width() + margin(); }
};

// A distance of so many floats.
inline std::ptrdiff_t stride(std::size_t floats) { return static_cast<std::ptrdiff_t>(floats); }

// Where a layer's pooled values, or the gradients to them, lie: strides in floats.
struct PooledPlace {
  float* first;
  std::ptrdiff_t row, column, channel;
};

class Convolution {
 public:
  // Weights as the products want them, repacked whenever the parameters change.
  struct Packed {
    linalg::AlignedVector<float> forward;   // [tap row, tap column, in, out]
    linalg::AlignedVector<float> backward;  // [tap row, tap column, out, in], taps reversed
    linalg::AlignedVector<float> gradient;  // as forward: summed over the images of a batch
    linalg::AlignedVector<float> bias_gradient;
    linalg::AlignedVector<float> image;  // [height, width, out]
    linalg::AlignedVector<float> delta;  // [padded height, padded width, out], border 0
  };

  Convolution(const ConvolutionShape& shape, std::size_t weight, std::size_t bias,
              const linalg::Kernels& kernels);

  const ConvolutionShape& shape() const { return shape_; }
  Packed make_packed() const;

  void pack_forward(const float* parameters, Packed& packed) const;
  void pack_backward(Packed& packed) const;  // after pack_forward
  // input: padded. choice: [pooled pixels, out], for backward.
  void forward(const float* parameters, const float* input, const PooledPlace& pooled,
               std::uint8_t* choice, Packed& packed) const;
  // Adds this image's gradient to the packed one; `first` begins a new sum. dx: [height, width, in]
  // or null.
  void backward(const float* input, const PooledPlace& pooled_delta, std::uint8_t* choice,
                bool first, float* dx, Packed& packed) const;
  void unpack_gradient(const Packed& packed, const GradientSink& sink) const;

 private:
  ConvolutionShape shape_;
  std::size_t weight_, bias_;  // offsets in the flat vector
  const linalg::Kernels& kernels_;
};

}  // namespace starling::model
