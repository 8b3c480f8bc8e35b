// SPDX-License-Identifier: Apache-2.0
// The compute half of a round: validates and sums the updates, then makes and evaluates the next
// model. Used by one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "coordinator/run_context.h"
#include "core/aggregate/aggregator.h"

namespace starling::coordinator {

struct RoundOutcome {
  model::Snapshot model;
  Sha256Digest sha256;
  std::optional<double> train_loss;  // weighted mean over the contributors
  std::optional<train::Evaluation> evaluation;
};

class RoundAggregate {
 public:
  // `context` must outlive the aggregate.
  [[nodiscard]] static Result<std::unique_ptr<RoundAggregate>> begin(
      const RunContext& context, const update::Schema& schema, model::Snapshot base,
      std::optional<double> norm_max = std::nullopt);

  // Returns the Euclidean norm of all its vectors. An update that is refused ("norm-above-bound",
  // and what validation finds) leaves the sum as it was, to the bit.
  [[nodiscard]] Result<double> add(update::ContributionHead head, SharedBytes payload);
  // Ends the round; "diverged" where the model would not be finite. Requires: something was added.
  [[nodiscard]] Result<RoundOutcome> finish(Round round, ComputePool* pool) &&;

 private:
  RoundAggregate(const RunContext& context, update::Schema schema, model::Snapshot base,
                 std::optional<double> norm_max, std::unique_ptr<aggregate::Aggregator> aggregator);

  const RunContext& context_;
  update::Schema schema_;
  model::Snapshot base_;
  std::optional<double> norm_max_;
  std::unique_ptr<aggregate::Aggregator> aggregator_;
};

}  // namespace starling::coordinator
