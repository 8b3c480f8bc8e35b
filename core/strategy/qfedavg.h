// SPDX-License-Identifier: Apache-2.0
// q-FedAvg: fair federated averaging; clients with a larger loss weigh more (Li et al., "Fair
// resource allocation in federated learning", ICLR 2020, Algorithm 2). With F = F_k(x), the mean
// loss over all rows of client k before its local steps, and L = 1/eta:
//   client k:  sends D_k = F^q (y_k - x) and the scalar "curvature"
//              h_k = q F^(q-1) L |y_k - x|^2 + F^q
//   server:    x <- x + eta_s sum_k D_k / sum_k h_k
// The paper's vector and scalar are L times these, which cancels as eta is the same for all; so
// q = 0 is FedAvg with uniform weights. With the loss the values fall by many orders of magnitude
// below a model's: they are summed over the whole range of float32. A round fails with
// "values-too-small" where that does not resolve a step of 2^-40, as with a loss of 0.006 and q 15.
// It needs means: the step is a quotient of two sums over the same clients. F is at least 1e-10
// (0^(q-1)), and without the penalty of the weight decay. Plain SGD only: 1/eta stands for the
// Lipschitz constant of gradient steps. Bytes per client and round: as FedAvg; time: a pass forward
// over the client's rows more. State: none.
#pragma once

#include "core/strategy/strategy.h"

namespace starling::strategy {

template <class T>
class QFedAvgClient final : public ClientStrategy<T> {
 public:
  explicit QFedAvgClient(const StrategyOptions& options) : q_(options.q) {}
  // Fails with "setting-invalid" where the learning rate is 0.
  Result<ClientResult<T>> round(const ClientRound<T>& round,
                                LocalTraining<T>& training) const override;

 private:
  double q_;
};

template <class T>
class QFedAvgServer final : public ServerStrategy<T> {
 public:
  explicit QFedAvgServer(const ServerOptions& options)
      : learning_rate_(options.learning_rate.value_or(1)) {}
  Weighting weighting() const override { return Weighting::kUniform; }
  std::vector<std::string> scalars() const override;
  std::string_view instead_of_step() const override {
    return "the step times the client's loss to the power strategy.q";
  }
  aggregate::ValueRange values() const override { return aggregate::ValueRange::kFloat32; }
  Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next, State<T>& state,
                     const ServerRound& round) const override;

 private:
  double learning_rate_;
};

}  // namespace starling::strategy
