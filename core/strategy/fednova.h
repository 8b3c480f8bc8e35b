// SPDX-License-Identifier: Apache-2.0
// FedNova: normalised averaging, so that clients that make more local steps do not pull the model
// to their own optimum (Wang et al., NeurIPS 2020, eq. 7 to 9). Local steps move y by eta times
// sum_j a_kj g_j; a_k = |a_k|_1 is how many plain steps that weighs:
//   SGD  a_k = tau_k
//   momentum rho  a_k = [tau_k - rho (1 - rho^tau_k) / (1 - rho)] / (1 - rho)
//   SGD with the proximal term mu (fedprox.h)  a_k = [1 - (1 - eta mu)^tau_k] / (eta mu)
//   client k:  sends d_k = (y_k - x) / a_k, the scalar "effective_steps" a_k, and n_k rows
//   server:    x <- x + eta_s (sum_k p_k a_k) sum_k p_k d_k, with p_k = n_k / sum_k n_k
// It needs means: the length of the step, sum_k p_k a_k, rests on what clients say of themselves,
// so that one of them could undo a median of the directions. Momentum begins anew each round. Bytes
// per client and round: as FedAvg. State: none.
#pragma once

#include "core/strategy/strategy.h"
#include "core/train/train_options.h"

namespace starling::strategy {

template <class T>
class FedNovaClient final : public ClientStrategy<T> {
 public:
  FedNovaClient(const StrategyOptions& options, const train::TrainOptions& training)
      : mu_(options.mu.value_or(0)),
        momentum_(training.optimizer == "momentum" ? training.momentum : 0) {}
  // Fails with "setting-invalid" where eta mu > 1: then a_k is not what the equations say.
  Result<ClientResult<T>> round(const ClientRound<T>& round,
                                LocalTraining<T>& training) const override;

 private:
  Result<double> effective_steps(const LocalWork& work) const;

  double mu_;
  double momentum_;
};

template <class T>
class FedNovaServer final : public ServerStrategy<T> {
 public:
  explicit FedNovaServer(const ServerOptions& options)
      : learning_rate_(options.learning_rate.value_or(1)) {}
  std::vector<std::string> scalars() const override;
  double scalar_max(const train::TrainOptions& training, std::uint64_t steps) const override;
  std::string_view instead_of_step() const override {
    return "the step divided by the client's effective local steps";
  }
  Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next, State<T>& state,
                     const ServerRound& round) const override;

 private:
  double learning_rate_;
};

}  // namespace starling::strategy
