// SPDX-License-Identifier: Apache-2.0
// Dense layers only; with no hidden layer this is softmax regression.
#pragma once

#include "core/model/dense_stack.h"

namespace starling::model {

class Mlp final : public Model {
 public:
  // Requires: `layout` is made by append_dense for fc1, fc2, ... from input to classes.
  Mlp(std::shared_ptr<const Layout> layout, data::Shape input, int classes,
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
  std::shared_ptr<const Layout> layout_;
  data::Shape input_;
  int classes_;
  const linalg::Kernels& kernels_;
  DenseStack dense_;
};

}  // namespace starling::model
