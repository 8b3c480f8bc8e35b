// SPDX-License-Identifier: Apache-2.0
// Evaluates external models, and makes first ones, by the process of a trainer
// (client/trainer_host.h), one for all runs: on a thread of its own, which the process must not
// outlive, one task after another. A caller that no longer needs its task returns at once.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "coordinator/rounds/model_evaluator.h"
#include "core/base/compute_pool.h"
#include "core/client/trainer_host.h"

namespace starling::coordinator {

class TrainerEvaluator final : public ModelEvaluator {
 public:
  // Starts nothing yet. `log`, which takes lines of any thread, must outlive the evaluator.
  TrainerEvaluator(client::TrainerHost::Options options, Log& log);
  // Requires: nothing waits in a call.
  ~TrainerEvaluator() override;
  TrainerEvaluator(const TrainerEvaluator&) = delete;
  TrainerEvaluator& operator=(const TrainerEvaluator&) = delete;

  // The first call starts the process. A task that is stopped is cancelled, and a trainer that does
  // not answer that is killed; the tasks of other runs go on with a new one. The errors are those
  // of ProcessTrainer, and of evaluate() "trainer-busy" where other runs have kept the trainer for
  // as long as the job's round.deadline.
  Result<train::Evaluation> evaluate(RunId run, const RunContext& context, Round round,
                                     const model::Snapshot& model,
                                     const std::stop_token& stop) override;
  Result<model::Snapshot> initialize(RunId run, const Job& job,
                                     const std::stop_token& stop) override;
  std::optional<RunId> at_work_for() const override;
  // Ends what is being done ("stopped"), and then the process. Nothing is done any more. Any
  // thread; does not wait.
  void stop();
  // Whether the process has ended since stop().
  bool stopped() const { return stopped_; }

 private:
  template <class T>
  using Task = std::function<Result<T>(const std::atomic<bool>& stop)>;

  // `patience`: how long the task may wait for its turn; nothing: as long as it takes.
  template <class T>
  Result<T> ask(RunId run, Task<T> task, const std::stop_token& stop,
                std::optional<Duration> patience);

  std::stop_source stopping_;
  std::atomic<bool> stopped_ = false;
  std::atomic<RunId> at_work_for_ = RunId();  // none: 0
  client::TrainerHost host_;
  ComputePool thread_{1};
};

}  // namespace starling::coordinator
