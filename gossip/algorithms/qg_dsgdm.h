// SPDX-License-Identifier: Apache-2.0
// Quasi-global momentum (QG-DSGDm: Lin, Karimireddy, Stich, Jaggi, ICML 2021), mu = beta:
//   local steps x <- x - eta (g(x) + beta m),  x' = W x_H,  m <- mu m + (1 - mu) (x - x') / (H eta)
// The momentum follows how the mixed model moved, not the node's own gradients. Nodes train with
// plain SGD. At rate 0, m stays. Bytes a message: 4 d.
#pragma once

#include "gossip/algorithms/mixer.h"
#include "gossip/algorithms/robust_mixing.h"

namespace starling::gossip {

template <class T>
class QgDsgdm final : public Algorithm<T> {
 public:
  QgDsgdm(double momentum, const RobustOptions& robust, std::span<const T> model);

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  std::span<const Bounded> bounded() const override { return robust_.report(); }
  void conclude(const Links&, std::span<const Received<T>>) override {}
  std::span<const T> model() const override { return x_; }
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(x_));
    state.elements(std::span(buffer_));
    return true;
  }
  void visit_state(StateVisitor& state) override { state.visit("momentum", std::span<T>(buffer_)); }

 private:
  double momentum_;
  Vector<T> x_;
  Vector<T> half_;    // x_H
  Vector<T> buffer_;  // m
  double whole_ = 0;  // H eta of the last local steps
  Message<T> message_;
  RobustMixing<T> robust_;
};

}  // namespace starling::gossip
