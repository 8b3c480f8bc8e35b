// SPDX-License-Identifier: Apache-2.0
// Computes rounds: sums, makes and evaluates models, writes their files, strictly in the order of
// the calls. Everything goes in by value and comes back in a turn of the process.
#pragma once

#include <functional>
#include <memory>

#include "coordinator/round_aggregate.h"
#include "core/base/computation.h"
#include "core/store/checkpoints.h"

namespace starling::coordinator {

class RoundExecutor {
 public:
  // `computation` has one worker; `evaluators` evaluate models. Both must outlive the executor.
  RoundExecutor(Computation& computation, ComputePool& evaluators);

  // What the rounds from now on compute with, and start from.
  void use(std::shared_ptr<const RunContext> context, model::Snapshot base);
  void begin(update::Schema schema, std::optional<double> norm_max);
  // `payload` must stay where it is until `done`, which gets the update's norm.
  void add(update::ContributionHead head, SharedBytes payload, Completion<double> done);
  void finish(Round round, Completion<RoundOutcome> done);
  // Durably, as the file of `round`.
  void write(store::Checkpoints checkpoints, Round round, model::Snapshot model,
             Completion<void> done);
  bool busy() const { return running_ > 0; }

 private:
  struct Bench {  // touched by the work only
    ComputePool& evaluators;
    std::shared_ptr<const RunContext> context;
    model::Snapshot base;
    Result<std::unique_ptr<RoundAggregate>> aggregate = std::unique_ptr<RoundAggregate>();
  };

  template <class T>
  void run(std::function<Result<T>(Bench&)> work, Completion<T> done);

  Computation& computation_;
  std::size_t running_ = 0;
  const std::shared_ptr<Bench> bench_;  // the work that is under way outlives the executor
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace starling::coordinator
