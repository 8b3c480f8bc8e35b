// SPDX-License-Identifier: Apache-2.0
#include "core/model/cnn.h"

#include "core/base/check.h"

namespace starling::model {
namespace {

std::size_t padded_floats(const ConvolutionShape& shape) {
  return shape.padded_pixels() * shape.in;
}
std::size_t flat_floats(const ConvolutionShape& last) { return last.out * last.pooled_pixels(); }

// Pixels as [row, column, channel], `width` of them in a row.
PooledPlace by_pixel(float* first, std::size_t width, std::size_t channels) {
  return {first, stride(width * channels), stride(channels), 1};
}
// As torch flattens: [channel, row, column].
PooledPlace by_channel(float* first, std::size_t height, std::size_t width) {
  return {first, stride(width), 1, stride(height * width)};
}

std::vector<Convolution> find_convolutions(const Layout& layout, data::Shape input,
                                           const linalg::Kernels& kernels) {
  std::vector<Convolution> found;
  auto height = static_cast<std::size_t>(input.height);
  auto width = static_cast<std::size_t>(input.width);
  for (int number = 1;; ++number) {
    const std::string name = "conv" + std::to_string(number);
    const TensorInfo* weight = layout.find(name + ".weight");
    const TensorInfo* bias = layout.find(name + ".bias");
    if (weight == nullptr || bias == nullptr) return found;
    const ConvolutionShape shape = {.in = static_cast<std::size_t>(weight->shape[1]),
                                    .out = static_cast<std::size_t>(weight->shape[0]),
                                    .height = height,
                                    .width = width,
                                    .kernel = static_cast<std::size_t>(weight->shape[2])};
    found.emplace_back(shape, weight->offset, bias->offset, kernels);
    height /= 2;
    width /= 2;
  }
}

}  // namespace

// Per layer, over the rows of a batch: padded inputs, pool choices. The rest is of one image.
struct Cnn::Scratch final : Workspace {
  std::size_t rows = 0;
  std::vector<linalg::AlignedVector<float>> inputs;
  std::vector<std::vector<std::uint8_t>> choices;
  std::vector<Convolution::Packed> packed;
  std::vector<linalg::AlignedVector<float>> input_deltas;  // empty for the first layer
  linalg::AlignedVector<float> flat;                       // [rows, dense inputs]
  linalg::AlignedVector<float> flat_delta;
  DenseStack::Scratch dense;
};

void append_convolution(std::vector<TensorInfo>& tensors, const std::string& name, std::int64_t in,
                        std::int64_t out, std::int64_t kernel) {
  tensors.push_back({.name = name + ".weight", .shape = {out, in, kernel, kernel}});
  tensors.push_back({.name = name + ".bias", .shape = {out}});
}

Cnn::Cnn(std::shared_ptr<const Layout> layout, data::Shape input, int classes,
         const linalg::Kernels& kernels)
    : layout_(std::move(layout)),
      input_(input),
      classes_(classes),
      kernels_(kernels),
      convolutions_(find_convolutions(*layout_, input, kernels)),
      dense_(*layout_, kernels) {
  STARLING_CHECK(!convolutions_.empty());
}

std::size_t Cnn::rows_max() const {
  std::size_t floats = dense_.floats_per_row() + 2 * flat_floats(convolutions_.back().shape());
  for (const Convolution& layer : convolutions_) {
    floats += padded_floats(layer.shape()) + flat_floats(layer.shape()) / sizeof(float);
  }
  return rows_for_scratch(floats);
}

std::unique_ptr<Workspace> Cnn::make_workspace(std::size_t rows) const {
  STARLING_CHECK(rows > 0 && rows <= rows_max());
  auto scratch = std::make_unique<Scratch>();
  scratch->rows = rows;
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    const ConvolutionShape& shape = convolutions_[i].shape();
    scratch->inputs.emplace_back(rows * padded_floats(shape));
    scratch->choices.emplace_back(rows * flat_floats(shape));
    scratch->packed.push_back(convolutions_[i].make_packed());
    scratch->input_deltas.emplace_back(i == 0 ? 0 : shape.height * shape.width * shape.in);
  }
  scratch->flat.resize(rows * flat_floats(convolutions_.back().shape()));
  scratch->flat_delta.resize(scratch->flat.size());
  scratch->dense = dense_.make_scratch(rows);
  return scratch;
}

// features: [channels, height, width] to [height, width, channels] inside the border.
void Cnn::copy_image(const float* features, float* padded) const {
  const ConvolutionShape& shape = convolutions_.front().shape();
  float* const interior = padded + shape.interior() * shape.in;
  for (std::size_t c = 0; c < shape.in; ++c) {
    for (std::size_t y = 0; y < shape.height; ++y) {
      const float* from = features + (c * shape.height + y) * shape.width;
      float* to = interior + y * shape.padded_width() * shape.in + c;
      for (std::size_t x = 0; x < shape.width; ++x) to[x * shape.in] = from[x];
    }
  }
}

PooledPlace Cnn::pooled_place(std::size_t layer, std::size_t row, Scratch& scratch) const {
  const ConvolutionShape& shape = convolutions_[layer].shape();
  if (layer + 1 == convolutions_.size()) {
    return by_channel(scratch.flat.data() + row * flat_floats(shape), shape.pooled_height(),
                      shape.pooled_width());
  }
  const ConvolutionShape& next = convolutions_[layer + 1].shape();
  float* const padded = scratch.inputs[layer + 1].data() + row * padded_floats(next);
  return by_pixel(padded + next.interior() * next.in, next.padded_width(), next.in);
}

PooledPlace Cnn::pooled_delta(std::size_t layer, std::size_t row, Scratch& scratch) const {
  const ConvolutionShape& shape = convolutions_[layer].shape();
  if (layer + 1 == convolutions_.size()) {
    return by_channel(scratch.flat_delta.data() + row * flat_floats(shape), shape.pooled_height(),
                      shape.pooled_width());
  }
  return by_pixel(scratch.input_deltas[layer + 1].data(), shape.pooled_width(), shape.out);
}

void Cnn::forward(const float* parameters, const Batch& batch, Scratch& scratch) const {
  STARLING_CHECK(batch.rows <= scratch.rows);
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    convolutions_[i].pack_forward(parameters, scratch.packed[i]);
  }
  for (std::size_t row = 0; row < batch.rows; ++row) {
    copy_image(batch.features + row * input_.features(),
               scratch.inputs[0].data() + row * padded_floats(convolutions_[0].shape()));
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      const ConvolutionShape& shape = convolutions_[i].shape();
      convolutions_[i].forward(parameters, scratch.inputs[i].data() + row * padded_floats(shape),
                               pooled_place(i, row, scratch),
                               scratch.choices[i].data() + row * flat_floats(shape),
                               scratch.packed[i]);
    }
  }
  dense_.forward(parameters, scratch.flat.data(), batch.rows, scratch.dense);
}

void Cnn::backward_image(std::size_t row, Scratch& scratch) const {
  for (std::size_t i = convolutions_.size(); i-- > 0;) {
    const ConvolutionShape& shape = convolutions_[i].shape();
    convolutions_[i].backward(scratch.inputs[i].data() + row * padded_floats(shape),
                              pooled_delta(i, row, scratch),
                              scratch.choices[i].data() + row * flat_floats(shape), row == 0,
                              i == 0 ? nullptr : scratch.input_deltas[i].data(), scratch.packed[i]);
  }
}

Score Cnn::score(std::span<const float> parameters, const Batch& batch,
                 Workspace& workspace) const {
  STARLING_CHECK(parameters.size() == layout_->size());
  auto& scratch = static_cast<Scratch&>(workspace);
  forward(parameters.data(), batch, scratch);
  return dense_.score(batch.labels, batch.rows, 0, scratch.dense);
}

Score Cnn::gradient(std::span<const float> parameters, const Batch& batch, double divisor,
                    const GradientSink& sink, Workspace& workspace) const {
  STARLING_CHECK(parameters.size() == layout_->size() && sink.target.size() == layout_->size());
  auto& scratch = static_cast<Scratch&>(workspace);
  forward(parameters.data(), batch, scratch);
  const Score score =
      dense_.score(batch.labels, batch.rows, static_cast<float>(1 / divisor), scratch.dense);
  dense_.backward(parameters.data(), scratch.flat.data(), batch.rows, sink,
                  scratch.flat_delta.data(), scratch.dense);
  for (std::size_t i = 1; i < convolutions_.size(); ++i) {
    convolutions_[i].pack_backward(scratch.packed[i]);
  }
  for (std::size_t row = 0; row < batch.rows; ++row) backward_image(row, scratch);
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    convolutions_[i].unpack_gradient(scratch.packed[i], sink);
  }
  return score;
}

}  // namespace starling::model
