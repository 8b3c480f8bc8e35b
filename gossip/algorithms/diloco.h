// SPDX-License-Identifier: Apache-2.0
// DiLoCo over gossip, NoLoCo (Kolehmainen et al., 2025): theta_i are H local steps on from phi_i,
//   v_i <- mu v_i + eta_o sum_j W_ij (theta_j - phi_j) + gamma (sum_j W_ij phi_j - phi_i)
//   phi_i <- phi_i + v_i
// with gamma = eta_o, as its authors run it: phi_j drops out of the sums and only theta_j travels,
// 4 d bytes. mu = 0, eta_o = 1 is D-PSGD to the bit.
#pragma once

#include "gossip/algorithms/mixer.h"
#include "gossip/algorithms/robust_mixing.h"

namespace starling::gossip {

// Disagreement dies out where eta_o <= 1 + mu and W is symmetric and stays; elsewhere only with
// less momentum (disagreement.h).
template <class T>
class Diloco final : public Algorithm<T> {
 public:
  Diloco(double outer_rate, double outer_momentum, const RobustOptions& robust,
         std::span<const T> model);

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  std::span<const Bounded> bounded() const override { return robust_.report(); }
  void conclude(const Links&, std::span<const Received<T>>) override {}
  std::span<const T> model() const override { return phi_; }
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(phi_));
    state.elements(std::span(velocity_));
    return true;
  }
  void visit_state(StateVisitor& state) override {
    state.visit("velocity", std::span<T>(velocity_));
  }

 private:
  double rate_;
  double momentum_;
  Vector<T> phi_;
  Vector<T> theta_;
  Vector<T> velocity_;
  Message<T> message_;
  RobustMixing<T> robust_;
};

}  // namespace starling::gossip
