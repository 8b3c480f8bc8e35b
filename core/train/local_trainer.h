// SPDX-License-Identifier: Apache-2.0
// What a client does in a round: some epochs (or steps) of an optimizer over its own rows, with the
// hooks that strategies need. Without hooks the optimizer's state begins anew each round, as in
// FedAvg.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "core/base/ids.h"
#include "core/base/rng.h"
#include "core/data/dataset.h"
#include "core/train/stepper.h"
#include "core/train/training_hooks.h"

namespace starling::train {

struct TrainResult {
  double train_loss = 0;      // mean over the samples seen, each before the step that used it
  std::uint64_t samples = 0;  // seen, with repetitions
  std::uint64_t steps = 0;
  double rate = 0;  // the learning rate of all steps
};

// The steps that train() takes over so many rows; of none only those of local_steps.
std::uint64_t local_steps(const TrainOptions& options, std::size_t rows);

// Owns the scratch of one thread and may be used again and again; not thread-safe.
class LocalTrainer {
 public:
  // Requires: validate(options).
  LocalTrainer(std::shared_ptr<const model::Model> model, TrainOptions options);

  // Trains `parameters` in place; the result's bits depend on the arguments and the kernel set
  // only. Fails with "no-data", "data-mismatch" (other shape or classes than the model's),
  // "diverged" (a loss or parameter is not finite), "stopped" (kRetry; `stop` is looked at before
  // every step) or "bad-optimizer-state" (the hooks' is not of this optimizer and model). After a
  // failure the parameters mean nothing, and the hooks' optimizer is as it was.
  [[nodiscard]] Result<TrainResult> train(std::span<float> parameters,
                                          const data::DatasetView& view, Round round, Round rounds,
                                          Rng rng, const std::atomic<bool>& stop,
                                          const TrainingHooks<float>& hooks = {});

  // The mean gradient over all rows, the weight decay included. Returns their mean loss, without
  // the penalty of the decay. The bits depend on the arguments and the kernel set only. Fails with
  // "no-data", "data-mismatch", "diverged" or "stopped" (looked at between blocks of rows).
  [[nodiscard]] Result<double> full_gradient(std::span<const float> parameters,
                                             const data::DatasetView& view,
                                             std::span<float> gradient,
                                             const std::atomic<bool>& stop);
  // The mean loss over all rows: evaluate()'s. Fails as that does, and with "diverged".
  [[nodiscard]] Result<double> loss(std::span<const float> parameters,
                                    const data::DatasetView& view,
                                    const std::atomic<bool>* stop = nullptr) const;
  const model::Model& model() const { return stepper_.model(); }

 private:
  TrainOptions options_;
  Stepper stepper_;
};

}  // namespace starling::train
