// SPDX-License-Identifier: Apache-2.0
#include "core/model/convolution.h"

namespace starling::model {
Convolution::Convolution(const ConvolutionShape& shape, std::size_t weight, std::size_t bias,
                         const linalg::Kernels& kernels)
    : shape_(shape), weight_(weight), bias_(bias), kernels_(kernels) {}

Convolution::Packed Convolution::make_packed() const {
  Packed packed;
  packed.forward.resize(shape_.weights());
  packed.backward.resize(shape_.weights());
  packed.gradient.resize(shape_.weights());
  packed.bias_gradient.resize(shape_.out);
  packed.image.resize(shape_.height * shape_.width * shape_.out);
  packed.delta.resize(shape_.padded_pixels() * shape_.out);
  return packed;
}

void Convolution::pack_forward(const float* parameters, Packed& packed) const {
  const std::size_t taps = shape_.kernel * shape_.kernel;
  const float* weight = parameters + weight_;  // [out, in, tap]
  for (std::size_t i = 0; i < shape_.in; ++i) {
    for (std::size_t tap = 0; tap < taps; ++tap) {
      float* to = packed.forward.data() + (tap * shape_.in + i) * shape_.out;
      for (std::size_t o = 0; o < shape_.out; ++o) to[o] = weight[(o * shape_.in + i) * taps + tap];
    }
  }
}

void Convolution::pack_backward(Packed& packed) const {
  const std::size_t taps = shape_.kernel * shape_.kernel;
  for (std::size_t tap = 0; tap < taps; ++tap) {
    const float* from = packed.forward.data() + tap * shape_.in * shape_.out;
    float* to = packed.backward.data() + (taps - 1 - tap) * shape_.in * shape_.out;
    for (std::size_t o = 0; o < shape_.out; ++o) {
      for (std::size_t i = 0; i < shape_.in; ++i) to[o * shape_.in + i] = from[i * shape_.out + o];
    }
  }
}

void Convolution::forward(const float* parameters, const float* input, const PooledPlace& pooled,
                          std::uint8_t* choice, Packed& packed) const {
  const std::size_t row = shape_.padded_width() * shape_.in;
  const std::size_t tap_row = shape_.kernel * shape_.in;
  kernels_.multiply({.a = input,  // image[y, x] = sum over taps of input[y + tap]
                     .a_group = stride(row),
                     .a_row = stride(shape_.in),
                     .a_outer = stride(row),
                     .a_inner = 1,
                     .b = packed.forward.data(),
                     .b_outer = stride(tap_row * shape_.out),
                     .b_inner = stride(shape_.out),
                     .c = packed.image.data(),
                     .c_group = stride(shape_.width * shape_.out),
                     .c_row = stride(shape_.out),
                     .groups = shape_.height,
                     .rows = shape_.width,
                     .columns = shape_.out,
                     .outer = shape_.kernel,
                     .inner = tap_row,
                     .bias = parameters + bias_});
  kernels_.pool_forward({.image = packed.image.data(),
                         .image_row = stride(shape_.width * shape_.out),
                         .pooled = pooled.first,
                         .pooled_row = pooled.row,
                         .pooled_column = pooled.column,
                         .pooled_channel = pooled.channel,
                         .choice = choice,
                         .height = shape_.pooled_height(),
                         .width = shape_.pooled_width(),
                         .channels = shape_.out});
}

void Convolution::backward(const float* input, const PooledPlace& pooled_delta,
                           std::uint8_t* choice, bool first, float* dx, Packed& packed) const {
  const std::size_t row = shape_.padded_width() * shape_.in;
  const std::size_t delta_row = shape_.padded_width() * shape_.out;
  float* const delta = packed.delta.data();
  float* const interior = delta + shape_.interior() * shape_.out;
  kernels_.pool_backward({.image = interior,
                          .image_row = stride(delta_row),
                          .pooled = pooled_delta.first,
                          .pooled_row = pooled_delta.row,
                          .pooled_column = pooled_delta.column,
                          .pooled_channel = pooled_delta.channel,
                          .choice = choice,
                          .height = shape_.pooled_height(),
                          .width = shape_.pooled_width(),
                          .channels = shape_.out});
  const float keep = first ? 0 : 1;
  kernels_.sum_rows(delta, stride(shape_.out), shape_.padded_pixels(), shape_.out, keep, 1,
                    packed.bias_gradient.data());
  const std::size_t tap_row = shape_.kernel * shape_.in;
  kernels_.multiply({.a = input,  // gradient[tap] = sum over pixels of input[pixel + tap] * delta
                     .a_group = stride(row),
                     .a_row = 1,
                     .a_outer = stride(row),
                     .a_inner = stride(shape_.in),
                     .b = interior,
                     .b_outer = stride(delta_row),
                     .b_inner = stride(shape_.out),
                     .c = packed.gradient.data(),
                     .c_group = stride(tap_row * shape_.out),
                     .c_row = stride(shape_.out),
                     .groups = shape_.kernel,
                     .rows = tap_row,
                     .columns = shape_.out,
                     .outer = shape_.height,
                     .inner = shape_.width,
                     .keep = keep});
  if (dx == nullptr) return;
  const std::size_t delta_tap_row = shape_.kernel * shape_.out;
  kernels_.multiply({.a = delta,  // dx[y, x] = sum over reversed taps of delta
                     .a_group = stride(delta_row),
                     .a_row = stride(shape_.out),
                     .a_outer = stride(delta_row),
                     .a_inner = 1,
                     .b = packed.backward.data(),
                     .b_outer = stride(delta_tap_row * shape_.in),
                     .b_inner = stride(shape_.in),
                     .c = dx,
                     .c_group = stride(shape_.width * shape_.in),
                     .c_row = stride(shape_.in),
                     .groups = shape_.height,
                     .rows = shape_.width,
                     .columns = shape_.in,
                     .outer = shape_.kernel,
                     .inner = delta_tap_row});
}

void Convolution::unpack_gradient(const Packed& packed, const GradientSink& sink) const {
  const std::size_t taps = shape_.kernel * shape_.kernel;
  float* weight = sink.target.data() + weight_;
  const auto into = [&sink](float& target, float gradient) {
    target = (sink.keep == 0 ? 0 : sink.keep * target) + sink.scale * gradient;
  };
  for (std::size_t i = 0; i < shape_.in; ++i) {
    for (std::size_t tap = 0; tap < taps; ++tap) {
      const float* from = packed.gradient.data() + (tap * shape_.in + i) * shape_.out;
      for (std::size_t o = 0; o < shape_.out; ++o) {
        into(weight[(o * shape_.in + i) * taps + tap], from[o]);
      }
    }
  }
  float* bias = sink.target.data() + bias_;
  for (std::size_t o = 0; o < shape_.out; ++o) into(bias[o], packed.bias_gradient[o]);
}

}  // namespace starling::model
