// SPDX-License-Identifier: Apache-2.0
// A client's trainer that is a program of its own (trainer_host.h). One host may serve many
// clients, one task at a time.
#pragma once

#include <string>

#include "core/client/trainer.h"
#include "core/client/trainer_host.h"
#include "core/client/training_settings.h"

namespace starling::client {

class ProcessTrainer : public Trainer {
 public:
  // `host` must outlive the trainer.
  ProcessTrainer(std::string client, TrainerHost& host) : client_(std::move(client)), host_(host) {}

  // Makes the initial model from the settings and the seed of `request`; the client does not
  // matter.
  [[nodiscard]] Result<void> initialize(const TrainingRequest& request, std::span<float> result,
                                        const std::atomic<bool>& stop);
  // All refuse with "tensors-differ" a run whose model is not the trainer's, and with
  // "unsupported-operation" what the trainer does not offer; the other errors are TrainerHost's.
  // Training that corrects gradients or keeps an optimizer is steps of train::Optimizer on the
  // trainer's `gradient`, with the arithmetic of train::Stepper: buffers become what the trainer
  // says, and it must say its rows ("rows-unknown").
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
  struct Prepared {
    train::TrainOptions options;
    double rate = 0;
    TrainerTask task;
    std::shared_ptr<const model::Layout> layout;
  };

  Result<Prepared> prepare(const TrainingRequest& request, std::size_t size,
                           const std::atomic<bool>& stop);
  // The rows of this client, also where the host serves others.
  Result<std::uint64_t> rows_of(const Prepared& prepared, const std::atomic<bool>& stop);
  Result<TrainingReport> fit(const Prepared& prepared, std::span<float> parameters,
                             const std::atomic<bool>& stop);
  Result<TrainingReport> train_by_gradients(const Prepared& prepared, std::span<float> parameters,
                                            const train::TrainingHooks<float>& hooks,
                                            const std::atomic<bool>& stop);

  std::string client_;
  TrainerHost& host_;
};

}  // namespace starling::client
