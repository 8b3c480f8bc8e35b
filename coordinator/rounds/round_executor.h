// SPDX-License-Identifier: Apache-2.0
// Computes the open phases of all runs: sums, makes and evaluates models, writes their files. What
// is asked for one run is done strictly in the order of the calls; the sums of different runs do
// not wait for each other, evaluations share one pool. Everything goes in by value and comes back
// in a turn of the process.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <stop_token>

#include "coordinator/rounds/round_aggregate.h"
#include "coordinator/rounds/round_results.h"
#include "coordinator/rounds/run_loader.h"
#include "core/base/computation.h"
#include "core/store/checkpoints.h"

namespace starling::coordinator {

class RoundExecutor {
 public:
  // `evaluators` evaluate built-in models, `external` others; null: nothing does. `results` is
  // asked first; null: everything is computed. All must outlive the executor.
  RoundExecutor(Computation& computation, ComputePool& evaluators,
                ModelEvaluator* external = nullptr, RoundResults* results = nullptr)
      : computation_(computation),
        evaluators_(evaluators),
        external_(external),
        results_(results) {}

  // In place of what the run summed before.
  void begin(std::shared_ptr<const RunContext> context, BeginRound phase);
  // `payload` must stay where it is until `done`, which gets the update's norm; where the run's
  // rule needs all updates at once, until finish() or drop() are done.
  void add(RunId run, update::ContributionHead head, update::Payload payload,
           Completion<double> done);
  void finish(RunId run, Completion<RoundOutcome> done);
  // An external model of the run is evaluated no further: finish() is done soon, without it.
  void stop_evaluation(RunId run);
  // Frees what the run has summed or kept. `dropped`: nothing reads a payload of it any more.
  void drop(RunId run, std::function<void()> dropped);
  // write_position()
  void write(store::Checkpoints checkpoints, RunPosition position,
             std::shared_ptr<const std::string> settings, Completion<store::ModelRecord> done);
  bool busy() const;

 private:
  // Of a run; touched by its work only, which outlives the executor where it is under way.
  using Aggregate = Result<std::unique_ptr<RoundAggregate>>;
  struct Line {
    std::shared_ptr<std::optional<Aggregate>> aggregate =
        std::make_shared<std::optional<Aggregate>>();
    std::deque<std::function<void()>> waiting;  // begin the work
    std::stop_source evaluation;
  };

  template <class T>
  void run(RunId run, std::function<Result<T>(std::optional<Aggregate>&)> work, Completion<T> done);
  void end(RunId run);

  Computation& computation_;
  ComputePool& evaluators_;
  ModelEvaluator* external_;
  RoundResults* results_;
  std::map<RunId, Line> lines_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace starling::coordinator
