// SPDX-License-Identifier: Apache-2.0
#include "coordinator/round_aggregate.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/linalg/kernels.h"

namespace starling::coordinator {

namespace {

constexpr std::size_t kBlock = 64 * 1024;

// The same bits on every processor.
double norm_of(const update::Contribution& contribution) {
  double total = 0;
  for (std::size_t i = 0; i < contribution.head().vectors.size(); ++i) {
    std::array<double, 8> sum{};
    contribution.for_each_block(i, kBlock, [&](std::size_t, std::span<const float> values) {
      linalg::default_kernels().add_squares(sum.data(), values.data(), values.size());
    });
    total += ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  }
  return std::sqrt(total);
}

}  // namespace

Result<std::unique_ptr<RoundAggregate>> RoundAggregate::begin(const RunContext& context,
                                                              const update::Schema& schema,
                                                              model::Snapshot base,
                                                              std::optional<double> norm_max) {
  STARLING_ASSIGN(auto aggregator, context.strategy->make_aggregator(schema));
  return std::unique_ptr<RoundAggregate>(
      new RoundAggregate(context, schema, std::move(base), norm_max, std::move(aggregator)));
}

RoundAggregate::RoundAggregate(const RunContext& context, update::Schema schema,
                               model::Snapshot base, std::optional<double> norm_max,
                               std::unique_ptr<aggregate::Aggregator> aggregator)
    : context_(context),
      schema_(std::move(schema)),
      base_(std::move(base)),
      norm_max_(norm_max),
      aggregator_(std::move(aggregator)) {}

Result<double> RoundAggregate::add(update::ContributionHead head, SharedBytes payload) {
  STARLING_ASSIGN(const update::Contribution contribution,
                  update::validate(std::move(head), std::move(payload), schema_));
  const double norm = norm_of(contribution);
  if (norm_max_ && norm > *norm_max_) {
    return rejected("norm-above-bound",
                    fmt::format("the update's norm {:.4g} is above {:.4g} (aggregation.norm-max)",
                                norm, *norm_max_));
  }
  STARLING_TRY(aggregator_->accumulate(contribution));
  return norm;
}

Result<RoundOutcome> RoundAggregate::finish(Round round, ComputePool* pool) && {
  aggregate::Report report = std::move(*aggregator_).report();
  RoundOutcome outcome;
  if (const auto loss = report.scalars.find("train_loss"); loss != report.scalars.end()) {
    outcome.train_loss = loss->second;
  }
  STARLING_ASSIGN(model::Parameters next, context_.strategy->apply(*base_, std::move(report)));
  outcome.sha256 = next.sha256();
  if (context_.evaluates(round)) {
    STARLING_ASSIGN(outcome.evaluation,
                    train::evaluate(*context_.model, next.values(), *context_.evaluation, pool));
  }
  outcome.model = std::make_shared<const model::Parameters>(std::move(next));
  return outcome;
}

}  // namespace starling::coordinator
