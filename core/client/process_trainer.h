// SPDX-License-Identifier: Apache-2.0
// A client's trainer that is a program of its own (trainer_host.h). One host may serve many
// clients, one task at a time.
#pragma once

#include <string>

#include "core/client/trainer.h"
#include "core/client/trainer_host.h"

namespace starling::client {

class ProcessTrainer : public Trainer {
 public:
  // `host` must outlive the trainer.
  ProcessTrainer(std::string client, TrainerHost& host) : client_(std::move(client)), host_(host) {}

  // The model to begin with, for `request`'s settings and seed.
  [[nodiscard]] Result<void> initialize(const TrainingRequest& request, std::span<float> result,
                                        const std::atomic<bool>& stop);
  // All refuse with "tensors-differ" a run whose model is not the trainer's, and with
  // "unsupported-operation" what the trainer does not offer. Training that corrects gradients or
  // keeps an optimizer is steps of train::Optimizer on the trainer's `gradient`.
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
  std::string client_;
  TrainerHost& host_;
};

}  // namespace starling::client
