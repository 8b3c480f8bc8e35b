// SPDX-License-Identifier: Apache-2.0
// The weighted mean sum_k w_k x_k / sum_k w_k of FedAvg (McMahan et al., AISTATS 2017, Algorithm
// 1): exact sums, so the result depends on the set of contributions and on nothing else.
#pragma once

#include "core/aggregate/aggregator.h"
#include "core/aggregate/fixed_point_sum.h"
#include "core/linalg/sum.h"

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
  bool can_report() const override { return contributions_ > 0; }
  Report report() && override;

 private:
  struct ScalarMean {
    linalg::ExactSum weighted;
    linalg::ExactSum weight;
  };
  WeightedMean(update::Schema schema, FixedPointScale scale);

  update::Schema schema_;
  std::vector<FixedPointSum> sums_;
  std::map<std::string, ScalarMean> scalars_;
  linalg::ExactSum weight_;
  std::uint32_t contributions_ = 0;
};

}  // namespace starling::aggregate
