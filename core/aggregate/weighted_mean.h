// SPDX-License-Identifier: Apache-2.0
// The weighted mean sum_k w_k x_k / sum_k w_k of FedAvg (McMahan et al., AISTATS 2017, Algorithm
// 1): exact sums, so the result depends on the set of contributions and on nothing else.
#pragma once

#include "core/aggregate/aggregator.h"
#include "core/aggregate/fixed_point_sum.h"
#include "core/aggregate/scalar_sums.h"

namespace starling::aggregate {

enum class ValueRange {
  kModel,    // as a step of a model: below the resolution of one sum (FixedPointScale) is nothing
  kFloat32,  // also far below: what one sum does not resolve goes to a second one
};

// Memory: 16 bytes an element and sum, whatever the number of contributions.
class WeightedMean final : public Aggregator {
 public:
  // Averages the named scalars too; others that a contribution brings are not looked at.
  [[nodiscard]] static Result<WeightedMean> create(const update::Schema& schema,
                                                   const std::vector<std::string>& scalars,
                                                   ValueRange range = ValueRange::kModel);

  [[nodiscard]] Result<void> accumulate(const update::Contribution& contribution) override;
  [[nodiscard]] Result<void> merge(ByteView serialized) override;
  Bytes serialize() override;
  bool can_report() const override { return scalars_.contributions > 0; }
  Report report() && override;

 private:
  WeightedMean(update::Schema schema, const std::vector<FixedPointScale>& scales,
               const std::vector<std::string>& scalars);

  void add(std::size_t vector, std::size_t first, std::span<const float> values, double weight);

  update::Schema schema_;
  std::size_t sums_each_;            // of a vector: 1, or 2
  std::vector<FixedPointSum> sums_;  // those of a vector stand together, the coarse one first
  ScalarSums scalars_;
  std::vector<float> coarse_, fine_;  // parts of a block's values, where there are two sums
};

}  // namespace starling::aggregate
