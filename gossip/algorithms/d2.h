// SPDX-License-Identifier: Apache-2.0
// D^2 (Tang, Lian, Yan, Zhang, Liu, ICML 2018): x^1 = W (x^0 - eta g^0),
//   x^{t+1} = W (2 x^t - x^{t-1} - eta g^t + eta g^{t-1});  here, u = x_H - x_0 of H local steps,
//   v = x + u + H eta c,  x' = W v,  c' = (x' - x - u) / (H eta) = c + (W v - v) / (H eta)
// from c = 0. W symmetric, the same at every step, smallest eigenvalue above -1/3; no message may
// be lost. Bytes a message: 4 d.
#pragma once

#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

// c is kept in units of the gradient, so that it goes with a rate or an H that changes.
template <class T>
class D2 final : public Algorithm<T> {
 public:
  explicit D2(std::span<const T> model);

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links&, std::span<const Received<T>>) override {}
  std::span<const T> model() const override { return x_; }
  // Only the model outlives a process: the corrections of all must cancel, so they begin anew
  // together.
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(x_));
    state.elements(std::span(correction_));
    return true;
  }

  // c = 0 at everybody: v is x + u, as if these members had begun together before the steps.
  void regroup(const Plan& plan, const Links& links, const LocalPhase* trained) override;

  // c; the mean over all nodes is 0.
  std::span<const double> correction() const { return correction_; }

 private:
  Vector<T> x_;
  Vector<T> v_;
  Vector<double> correction_;  // in double for the reason that gradient_tracking.h gives
  double whole_ = 0;           // H eta of the last local steps
  Message<T> message_;
};

}  // namespace starling::gossip
