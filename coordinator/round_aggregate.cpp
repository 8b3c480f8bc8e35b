// SPDX-License-Identifier: Apache-2.0
#include "coordinator/round_aggregate.h"

namespace starling::coordinator {

Result<std::unique_ptr<RoundAggregate>> RoundAggregate::begin(const RunContext& context,
                                                              const update::Schema& schema,
                                                              model::Snapshot base) {
  STARLING_ASSIGN(auto aggregator, context.strategy->make_aggregator(schema));
  return std::unique_ptr<RoundAggregate>(
      new RoundAggregate(context, schema, std::move(base), std::move(aggregator)));
}

RoundAggregate::RoundAggregate(const RunContext& context, update::Schema schema,
                               model::Snapshot base,
                               std::unique_ptr<aggregate::Aggregator> aggregator)
    : context_(context),
      schema_(std::move(schema)),
      base_(std::move(base)),
      aggregator_(std::move(aggregator)) {}

Result<void> RoundAggregate::add(update::ContributionHead head, SharedBytes payload) {
  STARLING_ASSIGN(const update::Contribution contribution,
                  update::validate(std::move(head), std::move(payload), schema_));
  return aggregator_->accumulate(contribution);
}

Result<RoundOutcome> RoundAggregate::finish(Round round, ComputePool* pool) && {
  const aggregate::Report report = std::move(*aggregator_).report();
  STARLING_ASSIGN(model::Parameters next, context_.strategy->apply(*base_, report));
  RoundOutcome outcome;
  outcome.sha256 = next.sha256();
  if (const auto loss = report.scalars.find("train_loss"); loss != report.scalars.end()) {
    outcome.train_loss = loss->second;
  }
  if (context_.evaluates(round)) {
    STARLING_ASSIGN(outcome.evaluation,
                    train::evaluate(*context_.model, next.values(), *context_.evaluation, pool));
  }
  outcome.model = std::make_shared<const model::Parameters>(std::move(next));
  return outcome;
}

}  // namespace starling::coordinator
