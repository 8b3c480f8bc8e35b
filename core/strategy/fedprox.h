// SPDX-License-Identifier: Apache-2.0
// FedProx (Li et al., MLSys 2020, Algorithm 2): each client minimises its loss plus
// mu/2 |y - x|^2, which keeps clients with unlike data near the round's model:
//   client k:  local steps with the gradient g + mu (y - x); sends y_k - x, with n_k rows
//   server:    as FedAvg (fedavg.h), which it is for mu = 0
// Clients take the same number of steps or epochs; the paper's inexact solutions (gamma) follow
// from deadlines only. Bytes per client and round: as FedAvg. State: none.
#pragma once

#include "core/strategy/strategy.h"

namespace starling::strategy {

template <class T>
class FedProxClient final : public ClientStrategy<T> {
 public:
  explicit FedProxClient(const StrategyOptions& options) : mu_(options.mu.value_or(0.01)) {}
  Result<ClientResult<T>> round(const ClientRound<T>& round,
                                LocalTraining<T>& training) const override;

 private:
  double mu_;
};

}  // namespace starling::strategy
