// SPDX-License-Identifier: Apache-2.0
// Federated averaging (McMahan et al., AISTATS 2017, Algorithm 1), in the form of deltas:
//   client k:  sends y_k - x, with n_k rows
//   server:    x <- x + eta_s sum_k n_k (y_k - x) / sum_k n_k
// which for eta_s = 1 equals the average of the y_k, and keeps a model that nobody changed the same
// to the bit. Bytes per client and round: 4 x parameters down, 4 x parameters up.
#pragma once

#include "core/strategy/strategy.h"

namespace starling::strategy {

// Also the client's half of every strategy that changes nothing but the server.
template <class T>
class FedAvgClient final : public ClientStrategy<T> {
 public:
  Result<ClientResult<T>> round(const ClientRound<T>& round,
                                LocalTraining<T>& training) const override;
};

template <class T>
class FedAvgServer final : public ServerStrategy<T> {
 public:
  explicit FedAvgServer(const ServerOptions& options)
      : learning_rate_(options.learning_rate.value_or(1)) {}
  Needs needs() const override { return Needs::kCentre; }
  Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next, State<T>& state,
                     const ServerRound& round) const override;

 private:
  double learning_rate_;
};

}  // namespace starling::strategy
