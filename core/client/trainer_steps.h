// SPDX-License-Identifier: Apache-2.0
// Training by a trainer's gradients: steps of train::Optimizer with the arithmetic of
// train::Stepper, of which only the gradient is the trainer's.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/client/trainer_host.h"
#include "core/client/training_settings.h"
#include "core/linalg/aligned.h"
#include "core/train/optimizer.h"
#include "core/train/training_hooks.h"

namespace starling::client {

// Whose task it is, and which of its rounds.
struct TaskPlace {
  std::string client;
  std::uint64_t seed = 0;  // of the run
  std::uint32_t round = 1;
  std::uint32_t rounds = 1;
};

// Follows from the place alone, so that the same task asked for again can give the same result.
std::uint64_t task_seed(const TaskPlace& place);

// The task with `options` at this rate, and the seed of its place.
TrainerTask make_task(const TaskPlace& place, train::TrainOptions options, double rate,
                      const TrainerSettings& settings);

// Owns the scratch of one thread, once it has stepped: a gradient, and the buffers' values where
// there are any.
class TrainerSteps {
 public:
  TrainerSteps(const model::Layout& layout, const train::TrainOptions& options);

  // One batch of a task, and how it is stepped on.
  struct Batch {
    const TrainerTask& task;
    std::uint64_t number = 0;  // of the task's
    double rate = 0;
  };
  // One step of `optimizer` on x, [d], in place; buffers become what the trainer says. Returns the
  // batch's rows and its mean loss at the x that came in. Errors: TrainerHost's, and "diverged"
  // where the loss or the gradient is not finite; x is as it was then.
  [[nodiscard]] Result<TrainerAnswer> step(TrainerHost& host, const Batch& batch,
                                           std::span<float> x, train::Optimizer& optimizer,
                                           const train::Correction<float>& correct,
                                           const std::atomic<bool>& stop);
  // The mean gradient at x, weight decay included; of all rows where `number` is nothing.
  [[nodiscard]] Result<TrainerAnswer> gradient(TrainerHost& host, const TrainerTask& task,
                                               std::optional<std::uint64_t> number,
                                               std::span<const float> x, std::span<float> result,
                                               const std::atomic<bool>& stop) const;

 private:
  struct Part {  // of the vector, that no optimizer changes
    std::size_t offset, size;
  };
  void clear_buffers(std::span<float> gradient) const;

  const train::TrainOptions options_;
  std::vector<Part> buffers_;
  linalg::AlignedVector<float> gradient_;
  linalg::AlignedVector<float> kept_;  // the buffers' values, where they lie in x; else empty
};

}  // namespace starling::client
