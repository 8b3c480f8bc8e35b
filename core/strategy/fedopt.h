// SPDX-License-Identifier: Apache-2.0
// FedAdagrad, FedAdam and FedYogi: adaptive optimizers at the server (Reddi et al., "Adaptive
// federated optimization", ICLR 2021, Algorithm 2), for each element:
//   client k:  as FedAvg (fedavg.h)
//   server:    m <- beta_1 m + (1 - beta_1) Delta, Delta the mean of y_k - x by rows; Adagrad:
//   Delta
//              v <- v + Delta^2                                      Adagrad
//                   beta_2 v + (1 - beta_2) Delta^2                  Adam
//                   v - (1 - beta_2) Delta^2 sign(v - Delta^2)       Yogi
//              x <- x + eta_s m / (sqrt(v) + tau)
// As in the paper v begins at tau^2 and moments are not corrected for their bias. Bytes per client
// and round: as FedAvg. State: the server's "momentum" m (not Adagrad's) and "second_moment" v.
#pragma once

#include "core/strategy/strategy.h"

namespace starling::strategy {

enum class FedOptKind { kAdagrad, kAdam, kYogi };

template <class T>
class FedOptServer final : public ServerStrategy<T> {
 public:
  FedOptServer(FedOptKind kind, const ServerOptions& options)
      : kind_(kind),
        learning_rate_(options.learning_rate.value_or(0.1)),
        beta1_(options.beta1),
        beta2_(options.beta2),
        tau_(options.tau) {}
  Needs needs() const override { return Needs::kCentre; }
  State<T> initial_state(std::size_t elements) const override;
  Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next, State<T>& state,
                     const ServerRound& round) const override;

 private:
  double second_moment(double v, double delta) const;

  FedOptKind kind_;
  double learning_rate_;
  double beta1_;
  double beta2_;
  double tau_;
};

}  // namespace starling::strategy
