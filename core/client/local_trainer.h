// SPDX-License-Identifier: Apache-2.0
// The built-in trainer, and what turns a task and its inputs into an update: the compute half of a
// client, run on a compute thread by the device's program and by the simulator alike.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/client/client_machine.h"
#include "core/client/run_data.h"
#include "core/client/trainer.h"
#include "core/client/training_settings.h"
#include "core/data/dataset.h"
#include "core/strategy/catalogue.h"
#include "core/train/local_trainer.h"

namespace starling::client {

// Scratch for one compute thread: a trainer is kept while the settings stay the same.
class TrainerCache {
 public:
  // Valid until the next call, as are the names. "wrong-vectors" unless the model has `elements`
  // parameters.
  [[nodiscard]] Result<train::LocalTrainer*> trainer_for(const TrainingRequest& request,
                                                         std::size_t elements);
  // What the settings of that call say of the rows.
  const data::RowNames& names() const { return names_; }

 private:
  Result<void> remake(Settings settings);

  Settings settings_;
  data::RowNames names_;
  std::size_t elements_ = 0;
  std::unique_ptr<train::LocalTrainer> trainer_;
};

class BuiltinTrainer : public Trainer {
 public:
  // `cache` must outlive the trainer and be used by one thread at a time.
  BuiltinTrainer(std::string client, std::shared_ptr<RunData> data, TrainerCache& cache)
      : client_(std::move(client)), data_(std::move(data)), cache_(cache) {}
  BuiltinTrainer(std::string client, ClientData data, TrainerCache& cache)
      : BuiltinTrainer(std::move(client), std::make_shared<RunData>(std::move(data)), cache) {}

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
  std::shared_ptr<RunData> data_;
  TrainerCache& cache_;
};

struct UpdateOptions {
  // Whether the inputs' SHA-256 are verified; not needed where they never left the process.
  bool verify_inputs = true;
  const strategy::Catalogue* strategies = &strategy::builtin_strategies();  // must outlive the call
  std::uint64_t memory_bytes_max = UINT64_MAX;  // for models, states and updates
  std::size_t pending_updates = 1;              // that may wait at a time, with this one
};

// While a model is trained there are the base, the local copy, the gradient and up to two vectors
// of the optimizer.
inline constexpr std::uint64_t kModelsWhileTraining = 5;

// Whether a training of this plan fits the memory: "model-too-large"; with the states of other
// runs: "memory-in-use", which may pass.
[[nodiscard]] Result<void> check_memory(const protocol::RoundPlan& plan,
                                        std::uint64_t other_states_bytes,
                                        const UpdateOptions& options);

// Does the task: trains with the strategy's client half, or evaluates, and packs the contribution.
// Memory as check_memory().
[[nodiscard]] Result<PendingUpdate> make_update(const Train& task, Trainer& trainer,
                                                const UpdateOptions& options,
                                                const std::atomic<bool>& stop);

}  // namespace starling::client
