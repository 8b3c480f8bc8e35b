// SPDX-License-Identifier: Apache-2.0
// SCAFFOLD: control variates that take the drift out of local steps (Karimireddy et al., ICML 2020,
// Algorithm 1). c is the server's, c_k client k's; both begin at 0:
//   client k:  local SGD steps with the gradient g - c_k + c; then
//              I:   c_k' = the full gradient at x           (costs a pass over the client's rows)
//              II:  c_k' = c_k - c + (x - y_k) / (tau_k eta)
//              sends y_k - x and c_k' - c_k; keeps c_k' once the round is committed
//   server:    x <- x + eta_s mean(y_k - x);  c <- c + |S|/N mean(c_k' - c_k), uniform means
// It needs means: c has to stay the mean of all c_k, or the corrections c - c_k do not cancel. The
// equations hold for plain SGD, with the weight decay as part of the loss. Bytes per client and
// round: 8 x parameters down (x and c), 8 x parameters up. State: the server's "control" c, which
// clients are sent, and a client's "control" c_k.
#pragma once

#include "core/strategy/strategy.h"

namespace starling::strategy {

template <class T>
class ScaffoldClient final : public ClientStrategy<T> {
 public:
  explicit ScaffoldClient(const StrategyOptions& options)
      : with_full_gradient_(options.option == "I") {}
  std::size_t state_vectors() const override { return 1; }
  // Fails with "setting-invalid" where the learning rate is 0 (option II divides by it).
  Result<ClientResult<T>> round(const ClientRound<T>& round,
                                LocalTraining<T>& training) const override;

 private:
  bool with_full_gradient_;
};

template <class T>
class ScaffoldServer final : public ServerStrategy<T> {
 public:
  explicit ScaffoldServer(const ServerOptions& options)
      : learning_rate_(options.learning_rate.value_or(1)) {}
  Weighting weighting() const override { return Weighting::kUniform; }
  std::vector<std::string> sends() const override;
  std::vector<std::string> receives() const override;
  State<T> initial_state(std::size_t elements) const override;
  bool mirrors_client_states() const override { return true; }
  std::string_view instead_of_step() const override {
    return "the step and the change of the client's control variate together";
  }
  Result<void> apply(std::span<const T> model, linalg::AlignedVector<T>& next, State<T>& state,
                     const ServerRound& round) const override;

 private:
  double learning_rate_;
};

}  // namespace starling::strategy
