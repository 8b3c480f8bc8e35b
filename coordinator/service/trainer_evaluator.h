// SPDX-License-Identifier: Apache-2.0
// Evaluates external models by the process of a trainer (client/trainer_host.h), one for all runs:
// on a thread of its own, which the process must not outlive, one model after another.
#pragma once

#include <atomic>
#include <optional>

#include "coordinator/rounds/model_evaluator.h"
#include "core/base/compute_pool.h"
#include "core/client/trainer_host.h"

namespace starling::coordinator {

class TrainerEvaluator final : public ModelEvaluator {
 public:
  // Starts nothing yet. `log`, which takes lines of any thread, must outlive the evaluator.
  // `patience`: how long evaluate() waits for evaluations of other runs; nothing: the
  // start-deadline and the task-deadline, by which each of them ends.
  TrainerEvaluator(client::TrainerHost::Options options, Log& log,
                   std::optional<Duration> patience = std::nullopt);
  // Requires: evaluate() is not being called.
  ~TrainerEvaluator() override;
  TrainerEvaluator(const TrainerEvaluator&) = delete;
  TrainerEvaluator& operator=(const TrainerEvaluator&) = delete;

  // The first call starts the process. "trainer-busy" where evaluations of other runs took so long
  // that this one does not wait any more. Else the errors of ProcessTrainer.
  Result<train::Evaluation> evaluate(const RunContext& context, Round round,
                                     const model::Snapshot& model) override;
  // Ends what is being evaluated ("stopped"), and then the process. Nothing is evaluated any more.
  // Any thread; does not wait.
  void stop();
  // Whether the process has ended since stop().
  bool stopped() const { return stopped_; }

 private:
  const Duration patience_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> stopped_ = false;
  client::TrainerHost host_;
  ComputePool thread_{1};
};

}  // namespace starling::coordinator
