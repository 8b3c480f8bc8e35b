// SPDX-License-Identifier: Apache-2.0
#include "edge_client/device_training.h"

#include <new>

#include "core/client/process_trainer.h"

namespace starling::edge_client {
namespace {

// A BuiltinTrainer with the scratch that it borrows.
class OwningTrainer final : private client::TrainerCache, public client::BuiltinTrainer {
 public:
  OwningTrainer(const std::string& client, const std::shared_ptr<client::RunData>& data)
      : BuiltinTrainer(client, data, static_cast<TrainerCache&>(*this)) {}
};

// A ProcessTrainer with its process.
class OwningProcessTrainer final : public client::ProcessTrainer {
 public:
  OwningProcessTrainer(const std::string& client, std::unique_ptr<client::TrainerHost> host)
      : ProcessTrainer(client, *host), host_(std::move(host)) {}

 private:
  const std::unique_ptr<client::TrainerHost> host_;
};

}  // namespace

Trainers make_builtin_trainers(const std::string& client, const client::ClientData& data,
                               int threads) {
  const auto shared = std::make_shared<client::RunData>(data);
  Trainers trainers;
  for (int i = 0; i < threads; ++i) {
    trainers.push_back(std::make_unique<OwningTrainer>(client, shared));
  }
  return trainers;
}

Trainers make_process_trainer(const std::string& client,
                              std::unique_ptr<client::TrainerHost> host) {
  Trainers trainers;
  trainers.push_back(std::make_unique<OwningProcessTrainer>(client, std::move(host)));
  return trainers;
}

client::MakeUpdate train_with(const Trainers& trainers, const client::UpdateOptions& options) {
  return [&trainers, options](const client::Train& task, client::Trainer* instead,
                              const std::atomic<bool>& stop,
                              unsigned worker) -> Result<client::PendingUpdate> {
    client::Trainer& trainer = instead == nullptr ? *trainers[worker] : *instead;
    try {
      return client::make_update(task, trainer, options, stop);
    } catch (const std::bad_alloc&) {
      return unsupported("out-of-memory", "this device has not enough memory to train the model");
    }
  };
}

}  // namespace starling::edge_client
