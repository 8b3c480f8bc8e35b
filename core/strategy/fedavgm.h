// SPDX-License-Identifier: Apache-2.0
// FedAvgM: federated averaging with momentum at the server (Hsu et al., "Measuring the effects of
// non-identical data distribution for federated visual classification", 2019):
//   client k:  as FedAvg (fedavg.h)
//   server:    v <- beta v + Delta, Delta the mean of y_k - x by rows
//              x <- x + eta_s v
// Bytes per client and round: as FedAvg. State: the server's "momentum" v, 0 before the first
// round.
#pragma once

#include "core/strategy/strategy.h"

namespace starling::strategy {

template <class T>
class FedAvgMServer final : public ServerStrategy<T> {
 public:
  explicit FedAvgMServer(const ServerOptions& options)
      : learning_rate_(options.learning_rate.value_or(1)),
        momentum_(options.momentum.value_or(0.9)) {}
  Needs needs() const override { return Needs::kCentre; }
  State<T> initial_state(std::size_t elements) const override;
  Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next, State<T>& state,
                     const ServerRound& round) const override;

 private:
  double learning_rate_;
  double momentum_;
};

}  // namespace starling::strategy
