// SPDX-License-Identifier: Apache-2.0
// Federated averaging (McMahan et al., AISTATS 2017, Algorithm 1), in the form of deltas:
//   client k:  d_k = w_k - w        (w_k: w after local training, n_k: its rows)
//   server:    w <- w + sum_k n_k d_k / sum_k n_k
// which equals the average of the w_k, and keeps a model that nobody changed the same to the bit.
// Bytes per client and round: 4 x parameters down, 4 x parameters up.
#pragma once

#include "core/strategy/strategy.h"

namespace starling::strategy {

class FedAvgClient final : public ClientStrategy {
 public:
  SharedBytes contribute(std::span<const float> base,
                         linalg::AlignedVector<float> trained) const override;
};

class FedAvgServer final : public ServerStrategy {
 public:
  update::Schema schema(const model::Layout& layout, const update::Bounds& bounds) const override;
  Result<std::unique_ptr<aggregate::Aggregator>> make_aggregator(
      const update::Schema& schema) const override;
  Result<model::Parameters> apply(const model::Parameters& base,
                                  aggregate::Report&& report) override;
};

}  // namespace starling::strategy
