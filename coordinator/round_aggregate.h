// SPDX-License-Identifier: Apache-2.0
// The compute half of a phase: validates and sums the contributions, then makes and evaluates the
// next model, or averages what clients measured. Used by one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "coordinator/coordinator_events.h"
#include "coordinator/run_context.h"
#include "core/aggregate/aggregator.h"

namespace starling::coordinator {

struct RoundOutcome {
  std::optional<RunPosition> next;   // of a training
  std::optional<double> train_loss;  // weighted mean over the contributors
  std::optional<Measured> measured;
};

class RoundAggregate {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RoundAggregate>> begin(
      std::shared_ptr<const RunContext> context, const BeginRound& phase);

  // Returns the Euclidean norm of all its vectors. An update that is refused ("norm-above-bound",
  // and what validation finds) leaves the sum as it was, to the bit.
  [[nodiscard]] Result<double> add(update::ContributionHead head, SharedBytes payload);
  // Ends the phase; "diverged" where the model would not be finite. Requires: something was added.
  [[nodiscard]] Result<RoundOutcome> finish(ComputePool* pool) &&;

 private:
  RoundAggregate(std::shared_ptr<const RunContext> context, const BeginRound& phase,
                 std::unique_ptr<aggregate::Aggregator> aggregator);

  Result<void> check_scalars(const update::ContributionHead& head) const;
  Result<RoundOutcome> train(aggregate::Report& report);

  std::shared_ptr<const RunContext> context_;
  protocol::TaskKind kind_;
  Round round_;
  update::Schema schema_;
  RunPosition base_;
  std::uint64_t population_;
  std::optional<double> norm_max_;
  std::unique_ptr<aggregate::Aggregator> aggregator_;
};

}  // namespace starling::coordinator
