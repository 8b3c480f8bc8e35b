// SPDX-License-Identifier: Apache-2.0
// Single optimizer steps on given rows: the inside of local training, and what simulations of many
// nodes call directly.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "core/data/dataset.h"
#include "core/model/model.h"
#include "core/train/optimizer.h"
#include "core/train/row_block.h"
#include "core/train/train_options.h"

namespace starling::train {

// Owns the scratch of one thread and the optimizer's state; not thread-safe.
class Stepper {
 public:
  // Requires: validate(options).
  Stepper(std::shared_ptr<const model::Model> model, const TrainOptions& options);

  // Forgets the optimizer's state and makes room for batches of up to `batch_rows` rows, of which
  // as many as the model takes at once are gathered at a time, and for steps with a correction
  // where they are announced. Requires: batch_rows > 0.
  void begin(std::size_t batch_rows, bool with_correction = false);

  // One step with the learning rate `rate` on the given rows of `dataset`, whose shape and classes
  // are the model's. Returns the sum of the rows' losses before the step; not finite where training
  // diverged, or where `stop` came between two passes over a large batch (then nothing is changed).
  // Requires: begin() for at least as many rows, and for the correction if there is one. Does not
  // allocate. The bits depend on the arguments and the steps since begin() only.
  double step(std::span<float> parameters, const data::Dataset& dataset,
              std::span<const std::uint32_t> rows, double rate,
              const std::atomic<bool>* stop = nullptr, const Correction<float>& correct = {});

  // The same with the state of `optimizer`, made for these options and this model, instead of its
  // own: one thread's scratch serves many nodes.
  double step(std::span<float> parameters, const data::Dataset& dataset,
              std::span<const std::uint32_t> rows, double rate, Optimizer& optimizer);
  // The mean gradient on the rows plus the weight decay, without a step. Returns the sum of the
  // rows' losses; not finite where `stop` came between two passes. Requires: begin() for at least
  // as many rows, or for as many as the model takes at once.
  double gradient(std::span<const float> parameters, const data::Dataset& dataset,
                  std::span<const std::uint32_t> rows, std::span<float> gradient,
                  const std::atomic<bool>* stop = nullptr);

  Optimizer& optimizer() { return optimizer_; }
  // Whether steps keep nothing from one to the next, so that they need no optimizer's state.
  bool is_stateless() const { return optimizer_.is_plain_sgd(); }
  const model::Model& model() const { return *model_; }

 private:
  double fused_step(std::span<float> parameters, const data::Dataset& dataset,
                    std::span<const std::uint32_t> rows, double rate);
  double step_with(Optimizer& optimizer, std::span<float> parameters, const data::Dataset& dataset,
                   std::span<const std::uint32_t> rows, double rate, const std::atomic<bool>* stop,
                   const Correction<float>& correct);
  double sum_gradient(std::span<const float> parameters, const data::Dataset& dataset,
                      std::span<const std::uint32_t> rows, std::span<float> gradient,
                      const std::atomic<bool>* stop);

  std::shared_ptr<const model::Model> model_;
  TrainOptions options_;
  Optimizer optimizer_;
  std::size_t pass_rows_ = 0;  // of one call into the model
  std::unique_ptr<model::Workspace> workspace_;
  RowBlock block_;
  linalg::AlignedVector<float> gradient_;  // empty while every step is fused
};

}  // namespace starling::train
