// SPDX-License-Identifier: Apache-2.0
// A trainer in this process that is not Starling's own, held to what is said of it: it gets tasks
// of its own model only, and what it throws or answers amiss is an error of the task.
#pragma once

#include "core/client/trainer.h"
#include "core/client/trainer_messages.h"
#include "core/model/model.h"

namespace starling::client {

// "tensors-differ" unless a run's model, of `size` values, is the one that the trainer describes.
[[nodiscard]] Result<void> check_tensors(const model::ModelSpec& spec, std::size_t size,
                                         const TrainerDescription& description);

// For a model of the trainer's tensors. "out-of-memory": a typing error in a layer's width is soon
// beyond any memory.
[[nodiscard]] Result<model::Parameters> room_for(const TrainerDescription& description);

class CheckedTrainer final : public Trainer {
 public:
  // `trainer` must outlive it. Requires: the description has a layout.
  CheckedTrainer(Trainer& trainer, TrainerDescription description);

  // Beside the trainer's errors: "tensors-differ"; "unsupported-operation" where the description
  // lacks what the task needs; "diverged" where a result is not finite; "trainer-failed" where the
  // trainer throws, or trains with a weight that is not positive.
  Result<TrainingReport> train(const TrainingRequest& request, std::span<float> parameters,
                               const train::TrainingHooks<float>& hooks,
                               const std::atomic<bool>& stop) override;
  Result<double> full_gradient(const TrainingRequest& request, std::span<const float> parameters,
                               std::span<float> gradient, const std::atomic<bool>& stop) override;
  Result<double> loss(const TrainingRequest& request, std::span<const float> parameters,
                      const std::atomic<bool>& stop) override;
  Result<train::Evaluation> evaluate(const TrainingRequest& request,
                                     std::span<const float> parameters,
                                     const std::atomic<bool>& stop) override;

 private:
  Result<void> check(const TrainingRequest& request, std::size_t size,
                     TrainerOperation operation) const;
  Result<void> check_finite(double number, std::span<const float> result = {}) const;
  Result<void> check_metrics(const train::Metrics& metrics, TrainerOperation operation) const;

  Trainer& trainer_;
  const TrainerDescription description_;
};

}  // namespace starling::client
