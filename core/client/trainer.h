// SPDX-License-Identifier: Apache-2.0
// What trains on a device: spans and plain structs only, so that a trainer in another language fits
// behind a C interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/train/evaluator.h"
#include "core/train/training_hooks.h"

namespace starling::client {

struct TrainingRequest {
  std::span<const std::pair<std::string, std::string>> settings;  // model.*, train.*, strategy.*
  std::uint64_t seed = 0;
  std::uint32_t round = 0;
  std::uint32_t rounds = 0;
};

struct TrainingReport {
  double weight = 0;  // rows held
  double train_loss = 0;
  std::uint64_t steps = 0;
  double rate = 0;              // the learning rate of these steps
  train::Metrics metrics = {};  // a custom trainer's own numbers; finite
};

// Results depend on the request and the parameters alone. Each call returns "stopped" soon after
// `stop` becomes true, and "unsupported-operation" where the trainer cannot do it.
class Trainer {
 public:
  virtual ~Trainer() = default;
  // Trains `parameters` (in: the base model) in place.
  [[nodiscard]] virtual Result<TrainingReport> train(const TrainingRequest& request,
                                                     std::span<float> parameters,
                                                     const train::TrainingHooks<float>& hooks,
                                                     const std::atomic<bool>& stop) = 0;
  // The mean gradient over all training rows, regularisation included; returns their mean loss.
  [[nodiscard]] virtual Result<double> full_gradient(const TrainingRequest& request,
                                                     std::span<const float> parameters,
                                                     std::span<float> gradient,
                                                     const std::atomic<bool>& stop);
  // The mean loss over all training rows.
  [[nodiscard]] virtual Result<double> loss(const TrainingRequest& request,
                                            std::span<const float> parameters,
                                            const std::atomic<bool>& stop);
  // On the rows that are held out and never trained on.
  [[nodiscard]] virtual Result<train::Evaluation> evaluate(const TrainingRequest& request,
                                                           std::span<const float> parameters,
                                                           const std::atomic<bool>& stop);
};

}  // namespace starling::client
