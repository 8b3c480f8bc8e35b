// SPDX-License-Identifier: Apache-2.0
#include "edge_client/training_tasks.h"

#include <new>

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

Result<client::PendingUpdate> train(const protocol::RoundPlan& plan, const SharedBytes& base,
                                    client::Trainer& trainer, const std::atomic<bool>& stop) {
  try {
    return client::make_update(plan, base, trainer, true, stop);
  } catch (const std::bad_alloc&) {
    return unsupported("out-of-memory", "this device has not enough memory to train the model");
  }
}

}  // namespace

TrainingTasks::TrainingTasks(Trainers trainers, std::function<void(client::TrainingFinished)> done)
    : trainers_(std::move(trainers)),
      done_(std::move(done)),
      pool_(static_cast<unsigned>(trainers_.size())) {}

TrainingTasks::~TrainingTasks() {
  for (auto& [task, stop] : stops_) stop->store(true);
}

void TrainingTasks::start(protocol::RoundPlan plan, SharedBytes base,
                          std::shared_ptr<client::Trainer> instead) {
  std::erase_if(stops_, [](const auto& entry) { return entry.second.use_count() == 1; });
  auto stop = std::make_shared<std::atomic<bool>>(false);
  stops_[plan.task] = stop;
  pool_.submit([this, plan = std::move(plan), base = std::move(base), instead = std::move(instead),
                stop](unsigned worker) {
    client::Trainer& trainer = instead ? *instead : *trainers_[worker];
    done_({plan.task, train(plan, base, trainer, *stop)});
  });
}

void TrainingTasks::cancel(TaskId task) {
  if (const auto found = stops_.find(task); found != stops_.end()) found->second->store(true);
}

TrainingTasks::Trainers make_builtin_trainers(const std::string& client,
                                              const data::DatasetView& data, int threads) {
  TrainingTasks::Trainers trainers;
  for (int i = 0; i < threads; ++i) {
    trainers.push_back(std::make_unique<OwningTrainer>(client, data));
  }
  return trainers;
}

}  // namespace starling::edge_client
