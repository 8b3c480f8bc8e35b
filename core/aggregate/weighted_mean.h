// SPDX-License-Identifier: Apache-2.0
// The weighted mean sum_k w_k x_k / sum_k w_k of FedAvg (McMahan et al., AISTATS 2017, Algorithm
// 1): exact sums, so the result depends on the set of contributions and on nothing else.
#pragma once

#include "core/aggregate/aggregator.h"
#include "core/aggregate/fixed_point_sum.h"
#include "core/aggregate/scalar_sums.h"

namespace starling::aggregate {

// Memory: 16 bytes an element, whatever the number of contributions.
class WeightedMean final : public Aggregator {
 public:
  // Averages the named scalars too; others that a contribution brings are not looked at.
  [[nodiscard]] static Result<WeightedMean> create(const update::Schema& schema,
                                                   const std::vector<std::string>& scalars);

  [[nodiscard]] Result<void> accumulate(const update::Contribution& contribution) override;
  [[nodiscard]] Result<void> merge(ByteView serialized) override;
  Bytes serialize() override;
  bool can_report() const override { return scalars_.contributions > 0; }
  Report report() && override;

 private:
  WeightedMean(update::Schema schema, FixedPointScale scale,
               const std::vector<std::string>& scalars);

  update::Schema schema_;
  std::vector<FixedPointSum> sums_;
  ScalarSums scalars_;
};

}  // namespace starling::aggregate
