// SPDX-License-Identifier: Apache-2.0
// Dense layers fc1, fc2, ... with ReLU between them and softmax cross-entropy at the end: all of an
// mlp, the tail of a cnn.
#pragma once

#include <vector>

#include "core/model/model.h"

namespace starling::model {

// Appends `NAME.weight` [out, in] and `NAME.bias` [out].
void append_dense(std::vector<TensorInfo>& tensors, const std::string& name, std::int64_t in,
                  std::int64_t out);

class DenseStack {
 public:
  struct Scratch {
    std::vector<linalg::AlignedVector<float>> outputs;  // per layer [rows, out], after ReLU
    std::vector<linalg::AlignedVector<float>> deltas;   // per layer: the loss's gradient to them
  };

  // Takes the tensors fc1, fc2, ... of `layout`. Requires: at least one.
  DenseStack(const Layout& layout, const linalg::Kernels& kernels);

  std::size_t floats_per_row() const;
  Scratch make_scratch(std::size_t rows) const;

  // x: [rows, in]. Leaves the outputs of every layer in `scratch`.
  void forward(const float* parameters, const float* x, std::size_t rows, Scratch& scratch) const;
  // After forward. With `scale` other than 0, also leaves scale * d loss_sum / d logits.
  Score score(const std::int32_t* labels, std::size_t rows, float scale, Scratch& scratch) const;
  // After score. dx: [rows, in], the gradient to x, or null.
  void backward(const float* parameters, const float* x, std::size_t rows, const GradientSink& sink,
                float* dx, Scratch& scratch) const;

 private:
  struct Layer {
    std::size_t in, out, weight, bias;  // the last two: offsets in the flat vector
  };

  void backward_layer(std::size_t index, const float* parameters, const float* input,
                      float* input_delta, std::size_t rows, const GradientSink& sink,
                      Scratch& scratch) const;

  std::vector<Layer> layers_;
  const linalg::Kernels& kernels_;
};

}  // namespace starling::model
