// SPDX-License-Identifier: Apache-2.0
// The built-in trainer, and what turns a plan and a base model into an update: the compute half of
// a client, run on a compute thread by the device's program and by the simulator alike.
#pragma once

#include <memory>
#include <string>

#include "core/client/client_machine.h"
#include "core/client/trainer.h"
#include "core/client/training_settings.h"
#include "core/data/dataset.h"
#include "core/train/local_trainer.h"

namespace starling::client {

// Scratch for one compute thread: a trainer is kept while the settings stay the same.
class TrainerCache {
 public:
  // Valid until the next call. "wrong-vectors" unless the model has `elements` parameters.
  [[nodiscard]] Result<train::LocalTrainer*> trainer_for(const TrainingRequest& request,
                                                         std::size_t elements);

 private:
  Result<void> remake(Settings settings);

  Settings settings_;
  std::size_t elements_ = 0;
  std::unique_ptr<train::LocalTrainer> trainer_;
};

class BuiltinTrainer final : public Trainer {
 public:
  // `cache` must outlive the trainer and be used by one thread at a time.
  BuiltinTrainer(std::string client, data::DatasetView data, TrainerCache& cache)
      : client_(std::move(client)), data_(std::move(data)), cache_(cache) {}

  Result<TrainingReport> train(const TrainingRequest& request, std::span<float> parameters,
                               const std::atomic<bool>& stop) override;

 private:
  std::string client_;
  data::DatasetView data_;
  TrainerCache& cache_;
};

// Trains from `base` and packs the contribution. Verifies the base's SHA-256 where `verify_base`
// (not needed where the snapshot never left the process).
[[nodiscard]] Result<PendingUpdate> make_update(const protocol::RoundPlan& plan,
                                                const SharedBytes& base, Trainer& trainer,
                                                bool verify_base, const std::atomic<bool>& stop);

}  // namespace starling::client
