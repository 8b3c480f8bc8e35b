// SPDX-License-Identifier: Apache-2.0
// What a client does in a round: some epochs (or steps) of an optimizer over its own rows. The
// optimizer's state begins anew each round, as in FedAvg.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "core/base/ids.h"
#include "core/base/rng.h"
#include "core/data/dataset.h"
#include "core/train/stepper.h"

namespace starling::train {

struct TrainResult {
  double train_loss = 0;      // mean over the samples seen, each before the step that used it
  std::uint64_t samples = 0;  // seen, with repetitions
  std::uint64_t steps = 0;
};

// The steps that train() takes over so many rows. Requires: rows > 0.
std::uint64_t local_steps(const TrainOptions& options, std::size_t rows);

// Owns the scratch of one thread and may be used again and again; not thread-safe.
class LocalTrainer {
 public:
  // Requires: validate(options).
  LocalTrainer(std::shared_ptr<const model::Model> model, TrainOptions options);

  // Trains `parameters` in place; the result's bits depend on the arguments and the kernel set
  // only. Fails with "no-data", "data-mismatch" (other shape or classes than the model's),
  // "diverged" (a loss or parameter is not finite) or "stopped" (kRetry; `stop` is looked at before
  // every step). After a failure the parameters mean nothing.
  [[nodiscard]] Result<TrainResult> train(std::span<float> parameters,
                                          const data::DatasetView& view, Round round, Round rounds,
                                          Rng rng, const std::atomic<bool>& stop);

 private:
  TrainOptions options_;
  Stepper stepper_;
};

}  // namespace starling::train
