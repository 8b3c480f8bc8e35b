// SPDX-License-Identifier: Apache-2.0
// Optimizer steps over flat vectors with the semantics of torch.optim: SGD (heavy ball without
// dampening, Nesterov), Adam (L2 in the gradient), AdamW (Loshchilov and Hutter, ICLR'19:
// decoupled).
#pragma once

#include <cstdint>
#include <span>

#include "core/linalg/aligned.h"
#include "core/linalg/kernels.h"
#include "core/train/train_options.h"
#include "core/train/training_hooks.h"

namespace starling::train {

class Optimizer {
 public:
  // Requires: validate(options); `kernels` outlives this.
  Optimizer(const TrainOptions& options, std::size_t size, const linalg::Kernels& kernels);

  // p - rate * (g + decay * p) and nothing else: can be fused into the gradient's computation.
  bool is_plain_sgd() const { return kind_ == Kind::kSgd; }
  // Forgets all state.
  void reset();
  // Continues where the optimizer of `state` stopped. Fails with "bad-optimizer-state" where the
  // sizes are not those of this kind of optimizer for this model.
  [[nodiscard]] Result<void> load(const OptimizerState<float>& state);
  // Plain SGD remembers nothing, not even its steps: the state of a new optimizer.
  OptimizerState<float> state() const {
    return is_plain_sgd() ? OptimizerState<float>{}
                          : OptimizerState<float>{first_, second_, steps_};
  }
  // Requires: both of the size given at construction.
  void step(std::span<float> parameters, std::span<const float> gradient, double rate);

 private:
  enum class Kind { kSgd, kMomentum, kNesterov, kAdam, kAdamW };

  void adam_step(std::span<float> parameters, std::span<const float> gradient, double rate);

  Kind kind_;
  TrainOptions options_;
  const linalg::Kernels& kernels_;
  linalg::AlignedVector<float> first_;   // velocity, or Adam's first moment
  linalg::AlignedVector<float> second_;  // Adam's second moment
  std::uint64_t steps_ = 0;
};

}  // namespace starling::train
