// SPDX-License-Identifier: Apache-2.0
#include "core/model/dense_stack.h"

#include "core/base/check.h"

namespace starling::model {

void append_dense(std::vector<TensorInfo>& tensors, const std::string& name, std::int64_t in,
                  std::int64_t out) {
  tensors.push_back({.name = name + ".weight", .shape = {out, in}});
  tensors.push_back({.name = name + ".bias", .shape = {out}});
}

DenseStack::DenseStack(const Layout& layout, const linalg::Kernels& kernels) : kernels_(kernels) {
  for (int number = 1;; ++number) {
    const std::string name = "fc" + std::to_string(number);
    const TensorInfo* weight = layout.find(name + ".weight");
    const TensorInfo* bias = layout.find(name + ".bias");
    if (weight == nullptr || bias == nullptr) break;
    layers_.push_back({static_cast<std::size_t>(weight->shape[1]),
                       static_cast<std::size_t>(weight->shape[0]), weight->offset, bias->offset});
  }
  STARLING_CHECK(!layers_.empty());
}

std::size_t DenseStack::floats_per_row() const {
  std::size_t sum = 0;
  for (const Layer& layer : layers_) sum += 2 * layer.out;
  return sum;
}

DenseStack::Scratch DenseStack::make_scratch(std::size_t rows) const {
  Scratch scratch;
  for (const Layer& layer : layers_) {
    scratch.outputs.emplace_back(rows * layer.out);
    scratch.deltas.emplace_back(rows * layer.out);
  }
  return scratch;
}

void DenseStack::forward(const float* parameters, const float* x, std::size_t rows,
                         Scratch& scratch) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    kernels_.affine({.x = i == 0 ? x : scratch.outputs[i - 1].data(),
                     .x_row = static_cast<std::ptrdiff_t>(layer.in),
                     .w = parameters + layer.weight,
                     .w_row = static_cast<std::ptrdiff_t>(layer.in),
                     .bias = parameters + layer.bias,
                     .y = scratch.outputs[i].data(),
                     .y_row = static_cast<std::ptrdiff_t>(layer.out),
                     .rows = rows,
                     .columns = layer.out,
                     .depth = layer.in,
                     .relu = i + 1 < layers_.size()});
  }
}

Score DenseStack::score(const std::int32_t* labels, std::size_t rows, float scale,
                        Scratch& scratch) const {
  linalg::CrossEntropy task = {.logits = scratch.outputs.back().data(),
                               .labels = labels,
                               .rows = rows,
                               .classes = layers_.back().out,
                               .gradient = scale == 0 ? nullptr : scratch.deltas.back().data(),
                               .scale = scale};
  kernels_.cross_entropy(task);
  return {task.loss_sum, task.correct};
}

void DenseStack::backward(const float* parameters, const float* x, std::size_t rows,
                          const GradientSink& sink, float* dx, Scratch& scratch) const {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const float* input = i == 0 ? x : scratch.outputs[i - 1].data();
    float* input_delta = i == 0 ? dx : scratch.deltas[i - 1].data();
    backward_layer(i, parameters, input, input_delta, rows, sink, scratch);
  }
}

// The gradient to the input comes first: the sink may overwrite the weights that it needs.
void DenseStack::backward_layer(std::size_t index, const float* parameters, const float* input,
                                float* input_delta, std::size_t rows, const GradientSink& sink,
                                Scratch& scratch) const {
  const Layer& layer = layers_[index];
  const auto in = static_cast<std::ptrdiff_t>(layer.in);
  const auto out = static_cast<std::ptrdiff_t>(layer.out);
  float* delta = scratch.deltas[index].data();
  if (input_delta != nullptr) {  // [rows, in] = delta [rows, out] * weight [out, in]
    kernels_.multiply({.a = delta,
                       .a_row = out,
                       .a_inner = 1,
                       .b = parameters + layer.weight,
                       .b_inner = in,
                       .c = input_delta,
                       .c_row = in,
                       .rows = rows,
                       .columns = layer.in,
                       .inner = layer.out,
                       .mask = index > 0 ? input : nullptr});
  }
  kernels_.sum_rows(delta, out, rows, layer.out, sink.keep, sink.scale,
                    sink.target.data() + layer.bias);
  if (sink.scale != 1) kernels_.scale(delta, rows * layer.out, sink.scale);
  kernels_.multiply({.a = delta,  // [out, in] = delta^T * input
                     .a_row = 1,
                     .a_inner = out,
                     .b = input,
                     .b_inner = in,
                     .c = sink.target.data() + layer.weight,
                     .c_row = in,
                     .rows = layer.out,
                     .columns = layer.in,
                     .inner = rows,
                     .keep = sink.keep});
}

}  // namespace starling::model
