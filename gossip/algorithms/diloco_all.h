// SPDX-License-Identifier: Apache-2.0
// DiLoCo with everybody in step (Douillard et al., 2023), the outer optimizer Nesterov's: theta_i
// are H local steps on from theta,
//   Delta = theta - (1/n) sum_i theta_i,  b <- mu b + Delta,  theta <- theta - eta_o (Delta + mu b)
// mu = 0, eta_o = 1 is all-reduce (local SGD, FedAvg) to the bit. Bytes a message: 4 d.
#pragma once

#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

template <class T>
class DilocoAll final : public Algorithm<T> {
 public:
  DilocoAll(double outer_rate, double outer_momentum, std::span<const T> model);

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  // Without a mean (its one message did not come) the node takes its own theta_i for it.
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links&, std::span<const Received<T>>) override {}
  std::span<const T> model() const override { return theta_; }
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(theta_));
    state.elements(std::span(buffer_));
    return true;
  }
  // The same at all nodes. Who lost it steps elsewhere for some exchanges: differences of (theta,
  // b) shrink by the larger eigenvalue of [[1 - eta_o - eta_o mu, -eta_o mu^2], [1, mu]] at each,
  // 0.52 of the usual constants.
  void visit_state(StateVisitor& state) override { state.visit("momentum", std::span<T>(buffer_)); }

 private:
  double rate_;
  double momentum_;
  Vector<T> theta_;
  Vector<T> local_;
  Vector<T> buffer_;  // b
  Message<T> message_;
};

}  // namespace starling::gossip
