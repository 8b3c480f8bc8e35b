// SPDX-License-Identifier: Apache-2.0
// A classifier as a function of its flat parameters. Immutable and thread-safe: whatever changes
// stands in the caller's parameters and in a workspace per thread. Results depend on the arguments
// and on the kernel set (linalg/kernels.h) only, down to the last bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/base/rng.h"
#include "core/data/dataset.h"
#include "core/linalg/kernels.h"
#include "core/model/model_spec.h"
#include "core/model/parameters.h"

namespace starling::model {

// Rows in the shape that the model was made for. Borrowed for the call.
struct Batch {
  const float* features = nullptr;       // [rows, input.features()], row-major
  const std::int32_t* labels = nullptr;  // [rows], each in [0, classes)
  std::size_t rows = 0;
};

// Sums over the rows of a batch.
struct Score {
  double loss_sum = 0;        // cross-entropy, natural logarithm
  std::uint64_t correct = 0;  // rows whose largest logit is the label's (the first, if equal)
};

// Where a backward pass puts the gradient g of the mean loss: target = keep * target + scale * g.
// Into a gradient buffer {buffer, 0, 1}; plain SGD in place {parameters, 1 - rate * decay, -rate}.
// With keep = 0 the target is not read.
struct GradientSink {
  std::span<float> target;  // [layout size]; may be the parameters themselves
  float keep = 0;
  float scale = 1;
};

// Scratch of one thread: activations and packed operands. Belongs to the model that made it.
class Workspace {
 public:
  virtual ~Workspace() = default;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const std::shared_ptr<const Layout>& layout() const = 0;
  virtual const linalg::Kernels& kernels() const = 0;
  virtual data::Shape input() const = 0;
  virtual int classes() const = 0;
  // How many rows one call may have; it keeps the scratch small.
  virtual std::size_t rows_max() const = 0;

  // For calls of at most `rows` rows. Requires: 0 < rows <= rows_max().
  virtual std::unique_ptr<Workspace> make_workspace(std::size_t rows) const = 0;

  // The loss alone. Does not allocate.
  virtual Score score(std::span<const float> parameters, const Batch& batch,
                      Workspace& workspace) const = 0;

  // The loss before the change, and the gradient of `loss_sum / divisor` into the sink. A batch
  // larger than rows_max() is several calls with one divisor. Does not allocate.
  virtual Score gradient(std::span<const float> parameters, const Batch& batch, double divisor,
                         const GradientSink& sink, Workspace& workspace) const = 0;
};

// More parameters than this (1 GiB of float32) are refused.
inline constexpr std::uint64_t kParametersMax = std::uint64_t{1} << 28;

// softmax-regression: fc1. mlp: fc1, ReLU, fc2, ... cnn: conv1, ReLU, 2x2 max-pool, conv2, ...,
// flatten (channels, height, width), fc1, ReLU, ... Tensors are `NAME.weight` ([out, in], or
// [out, in, height, width]) and `NAME.bias`: what torch's load_state_dict takes for a Sequential of
// an OrderedDict with these names. Refuses ("bad-model-spec") what does not fit the input.
[[nodiscard]] Result<std::shared_ptr<const Model>> make_model(
    const ModelSpec& spec, data::Shape input, int classes,
    const linalg::Kernels& kernels = linalg::default_kernels());

// PyTorch's defaults: a layer's weights and biases uniform in +-1/sqrt(fan_in), in layout order.
Parameters initial_parameters(const Model& model, Rng rng);
// From the stream (seed, kInitialization).
Parameters initial_parameters(const Model& model, std::uint64_t seed);

// For implementations: the rows whose scratch of `floats_per_row` takes some 16 MiB, 1 ... 1024.
std::size_t rows_for_scratch(std::size_t floats_per_row);

}  // namespace starling::model
