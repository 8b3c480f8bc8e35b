// SPDX-License-Identifier: Apache-2.0
// Training on compute threads, away from the network: plans go in, updates come back by a callback,
// and each task can be told to stop.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/base/compute_pool.h"
#include "core/client/local_trainer.h"

namespace starling::edge_client {

// All members but `done`: one thread.
class TrainingTasks {
 public:
  using Trainers = std::vector<std::unique_ptr<client::Trainer>>;

  // A thread for each trainer. `done` runs on these threads, once for every start().
  // Requires: at least one trainer.
  TrainingTasks(Trainers trainers, std::function<void(client::TrainingFinished)> done);
  // Stops what runs and waits for it; its `done` may still be called meanwhile.
  ~TrainingTasks();
  TrainingTasks(const TrainingTasks&) = delete;
  TrainingTasks& operator=(const TrainingTasks&) = delete;

  // `instead`: in place of the thread's trainer.
  void start(protocol::RoundPlan plan, SharedBytes base,
             std::shared_ptr<client::Trainer> instead = nullptr);
  // The task ends soon, with "stopped"; one that has ended already does not mind.
  void cancel(TaskId task);

 private:
  using StopFlag = std::shared_ptr<std::atomic<bool>>;

  Trainers trainers_;  // by worker
  std::function<void(client::TrainingFinished)> done_;
  std::map<TaskId, StopFlag> stops_;
  ComputePool pool_;  // last: its threads end before what they use
};

// Built-in trainers on the device's data, each with scratch of its own.
TrainingTasks::Trainers make_builtin_trainers(const std::string& client,
                                              const data::DatasetView& data, int threads);

}  // namespace starling::edge_client
