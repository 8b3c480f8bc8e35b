// SPDX-License-Identifier: Apache-2.0
// Convolutions conv1, conv2, ..., each with ReLU and a 2x2 max-pool, then dense layers. The network
// of McMahan et al. (AISTATS'17) for 28x28 images: 5x5x32, 5x5x64, 512, classes.
#pragma once

#include "core/model/convolution.h"
#include "core/model/dense_stack.h"

namespace starling::model {

// Appends `NAME.weight` [out, in, kernel, kernel] and `NAME.bias` [out].
void append_convolution(std::vector<TensorInfo>& tensors, const std::string& name, std::int64_t in,
                        std::int64_t out, std::int64_t kernel);

class Cnn final : public Model {
 public:
  // Requires: `layout` holds conv1, conv2, ... with square odd kernels that suit `input`, and fc1,
  // fc2, ... from the flattened last image [channels, height, width] to classes.
  Cnn(std::shared_ptr<const Layout> layout, data::Shape input, int classes,
      const linalg::Kernels& kernels);

  const std::shared_ptr<const Layout>& layout() const override { return layout_; }
  const linalg::Kernels& kernels() const override { return kernels_; }
  data::Shape input() const override { return input_; }
  int classes() const override { return classes_; }
  std::size_t rows_max() const override;
  std::unique_ptr<Workspace> make_workspace(std::size_t rows) const override;
  Score score(std::span<const float> parameters, const Batch& batch,
              Workspace& workspace) const override;
  Score gradient(std::span<const float> parameters, const Batch& batch, double divisor,
                 const GradientSink& sink, Workspace& workspace) const override;

 private:
  struct Scratch;

  void copy_image(const float* features, float* padded) const;
  PooledPlace pooled_place(std::size_t layer, std::size_t row, Scratch& scratch) const;
  PooledPlace pooled_delta(std::size_t layer, std::size_t row, Scratch& scratch) const;
  void forward(const float* parameters, const Batch& batch, Scratch& scratch) const;
  void backward_image(std::size_t row, Scratch& scratch) const;

  std::shared_ptr<const Layout> layout_;
  data::Shape input_;
  int classes_;
  const linalg::Kernels& kernels_;
  std::vector<Convolution> convolutions_;
  DenseStack dense_;
};

}  // namespace starling::model
