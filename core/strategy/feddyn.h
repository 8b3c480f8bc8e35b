// SPDX-License-Identifier: Apache-2.0
// FedDyn: a regulariser that changes with the rounds, so that the clients' optima agree with that
// of their mean loss (Acar et al., ICLR 2021, Algorithm 1). G_k and h begin at 0:
//   client k:  local steps with the gradient g - G_k + alpha (y - x); then
//              G_k <- G_k - alpha (y_k - x), kept once the round is committed; sends y_k - x
//   server:    h <- h - alpha |S|/N mean(y_k - x), uniform
//              x <- x + eta_s (mean(y_k - x) - h / alpha)
// It needs means: h has to stay the mean of all G_k. eta_s = 1 in the paper. Any local optimizer
// will do: the paper asks for a minimum only. Bytes per client and round: as FedAvg. State: the
// server's "gradient" h, a client's "gradient" G_k.
#pragma once

#include "core/strategy/strategy.h"

namespace starling::strategy {

template <class T>
class FedDynClient final : public ClientStrategy<T> {
 public:
  explicit FedDynClient(const StrategyOptions& options) : alpha_(options.alpha) {}
  std::size_t state_vectors() const override { return 1; }
  Result<ClientResult<T>> round(const ClientRound<T>& round,
                                LocalTraining<T>& training) const override;

 private:
  double alpha_;
};

template <class T>
class FedDynServer final : public ServerStrategy<T> {
 public:
  FedDynServer(const StrategyOptions& options, const ServerOptions& server)
      : alpha_(options.alpha), learning_rate_(server.learning_rate.value_or(1)) {}
  Weighting weighting() const override { return Weighting::kUniform; }
  State<T> initial_state(std::size_t elements) const override;
  bool mirrors_client_states() const override { return true; }
  Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next, State<T>& state,
                     const ServerRound& round) const override;

 private:
  double alpha_;
  double learning_rate_;
};

}  // namespace starling::strategy
