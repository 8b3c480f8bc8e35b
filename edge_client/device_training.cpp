// SPDX-License-Identifier: Apache-2.0
#include "edge_client/device_training.h"

#include <new>

#include "core/client/local_trainer.h"

namespace starling::edge_client {
namespace {

// Owns the scratch that a BuiltinTrainer borrows.
class OwningTrainer final : public client::Trainer {
 public:
  OwningTrainer(const std::string& client, const data::DatasetView& data)
      : trainer_(client, data, cache_) {}

  Result<client::TrainingReport> train(const client::TrainingRequest& request,
                                       std::span<float> parameters,
                                       const std::atomic<bool>& stop) override {
    return trainer_.train(request, parameters, stop);
  }

 private:
  client::TrainerCache cache_;
  client::BuiltinTrainer trainer_;
};

}  // namespace

Trainers make_builtin_trainers(const std::string& client, const data::DatasetView& data,
                               int threads) {
  Trainers trainers;
  for (int i = 0; i < threads; ++i) {
    trainers.push_back(std::make_unique<OwningTrainer>(client, data));
  }
  return trainers;
}

client::MakeUpdate train_with(const Trainers& trainers) {
  return [&trainers](const client::Train& task, client::Trainer* instead,
                     const std::atomic<bool>& stop,
                     unsigned worker) -> Result<client::PendingUpdate> {
    client::Trainer& trainer = instead == nullptr ? *trainers[worker] : *instead;
    try {
      return client::make_update(task.plan, task.base, trainer, true, stop);
    } catch (const std::bad_alloc&) {
      return unsupported("out-of-memory", "this device has not enough memory to train the model");
    }
  };
}

}  // namespace starling::edge_client
