// SPDX-License-Identifier: Apache-2.0
// Computes the open phases of all runs: sums, makes and evaluates models, writes their files,
// strictly in the order of the calls. Everything goes in by value and comes back in a turn of the
// process.
#pragma once

#include <map>
#include <memory>

#include "coordinator/round_aggregate.h"
#include "coordinator/run_loader.h"
#include "core/base/computation.h"
#include "core/store/checkpoints.h"

namespace starling::coordinator {

class RoundExecutor {
 public:
  // `computation` has one worker; `evaluators` evaluate models. Both must outlive the executor.
  RoundExecutor(Computation& computation, ComputePool& evaluators);

  // In place of what the run summed before.
  void begin(std::shared_ptr<const RunContext> context, BeginRound phase);
  // `payload` must stay where it is until `done`, which gets the update's norm; where the run's
  // rule needs all updates at once, until finish() or drop() are done.
  void add(RunId run, update::ContributionHead head, update::Payload payload,
           Completion<double> done);
  void finish(RunId run, Completion<RoundOutcome> done);
  // Frees what the run has summed or kept. `dropped`: nothing reads a payload of it any more.
  void drop(RunId run, std::function<void()> dropped);
  // write_position()
  void write(store::Checkpoints checkpoints, RunPosition position,
             std::shared_ptr<const std::string> settings, Completion<store::ModelRecord> done);
  bool busy() const { return running_ > 0; }

 private:
  struct Bench {  // touched by the work only
    ComputePool& evaluators;
    std::map<RunId, Result<std::unique_ptr<RoundAggregate>>> aggregates = {};
  };

  template <class T>
  void run(std::function<Result<T>(Bench&)> work, Completion<T> done);

  Computation& computation_;
  std::size_t running_ = 0;
  const std::shared_ptr<Bench> bench_;  // the work that is under way outlives the executor
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace starling::coordinator
