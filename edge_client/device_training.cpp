// SPDX-License-Identifier: Apache-2.0
#include "edge_client/device_training.h"

#include <new>

#include "core/client/abilities.h"
#include "core/client/checked_trainer.h"
#include "core/client/process_trainer.h"
#include "core/client/training_settings.h"

namespace starling::edge_client {
namespace {

// A BuiltinTrainer with the scratch that it borrows.
class OwningTrainer final : private client::TrainerCache, public client::BuiltinTrainer {
 public:
  OwningTrainer(const std::string& client, const std::shared_ptr<client::RunData>& data)
      : BuiltinTrainer(client, data, static_cast<TrainerCache&>(*this)) {}
};

// Rows are not announced: how many a trainer uses may depend on the run, and no update may weigh
// more than was announced.
DeviceTraining one_trainer(std::unique_ptr<client::Trainer> trainer,
                           const client::TrainerDescription& description) {
  DeviceTraining training{
      .trainers = {},
      .abilities = client::abilities_of(strategy::builtin_strategies(), description)};
  training.trainers.push_back(std::move(trainer));
  return training;
}

}  // namespace

DeviceTraining train_on_data(const std::string& client, const client::ClientData& data,
                             int threads) {
  const data::Dataset& dataset = *data.training.dataset;
  const auto shape = client::DataShape::of(dataset.shape(), dataset.classes());
  DeviceTraining training{
      .trainers = {},
      .abilities = client::abilities_of(strategy::builtin_strategies(), data.held_out.has_value()),
      .rows = data.training.size(),
      .held_out = data.held_out ? data.held_out->size() : 0,
      .input = {shape.input.begin(), shape.input.end()},
      .classes = static_cast<std::uint32_t>(shape.classes)};
  const auto shared = std::make_shared<client::RunData>(data);
  for (int i = 0; i < threads; ++i) {
    training.trainers.push_back(std::make_unique<OwningTrainer>(client, shared));
  }
  return training;
}

Result<DeviceTraining> train_by_program(client::TrainerHost::Options options,
                                        const std::atomic<bool>& stop, Log& log) {
  const std::string client = options.client;
  auto host = std::make_shared<client::TrainerHost>(std::move(options), log);
  const auto found = host->describe("{}", stop);
  if (!found && !client::is_answer(found.error())) return found.error();
  client::TrainerDescription description;
  if (found) {
    description = *found;
    log.info("{}", client::summarize(description));
  } else {
    description.operations = {client::TrainerOperation::kFit};
    log.warning(
        "{}; it is asked again with the settings of a run, and until it describes itself "
        "without any the coordinator takes it to offer 'fit' alone",
        found.error().message());
  }
  DeviceTraining training =
      one_trainer(std::make_unique<client::ProcessTrainer>(client, *host), description);
  training.program = std::move(host);
  return training;
}

DeviceTraining train_by_application(client::Trainer& trainer,
                                    const client::TrainerDescription& description) {
  return one_trainer(std::make_unique<client::CheckedTrainer>(trainer, description), description);
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
