// SPDX-License-Identifier: Apache-2.0
// DiLoCo: many local steps of an inner optimizer whose state clients keep, and Nesterov momentum at
// the server (Douillard et al., "DiLoCo: distributed low-communication training of language
// models", 2023, Algorithm 1; AdamW inside in the paper, any here):
//   client k:  local steps that continue its inner optimizer; sends y_k - x
//   server:    b <- mu b + Delta, Delta the uniform mean of y_k - x
//              x <- x + eta_o (Delta + mu b)
// This is torch's SGD with nesterov on the gradient -Delta, with b's sign turned; eta_o = 1 and
// mu = 0 is FedAvg with uniform weights, to the bit. Bytes per client and round: as FedAvg. State:
// the server's "momentum" b; a client's "optimizer.first", "optimizer.second" and
// "optimizer.steps", where its optimizer remembers anything.
#pragma once

#include "core/strategy/strategy.h"
#include "core/train/train_options.h"

namespace starling::strategy {

template <class T>
class DiLoCoClient final : public ClientStrategy<T> {
 public:
  DiLoCoClient(const StrategyOptions&, const train::TrainOptions& training)
      : optimizer_(training.optimizer) {}
  std::size_t state_vectors() const override;
  Result<ClientResult<T>> round(const ClientRound<T>& round,
                                LocalTraining<T>& training) const override;

 private:
  std::string optimizer_;
};

template <class T>
class DiLoCoServer final : public ServerStrategy<T> {
 public:
  explicit DiLoCoServer(const ServerOptions& options)
      : learning_rate_(options.learning_rate.value_or(0.7)),
        momentum_(options.momentum.value_or(0.9)) {}
  Weighting weighting() const override { return Weighting::kUniform; }
  Needs needs() const override { return Needs::kCentre; }
  State<T> initial_state(std::size_t elements) const override;
  Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next, State<T>& state,
                     const ServerRound& round) const override;

 private:
  double learning_rate_;
  double momentum_;
};

}  // namespace starling::strategy
