// SPDX-License-Identifier: Apache-2.0
// D-PSGD (Lian, Zhang, Zhang, Hsieh, Zhang, Liu, NeurIPS 2017), u = x_H - x_0 of H local steps:
//   adapt-then-combine   x_i <- sum_j W_ij (x_j + u_j)
//   combine-while-adapt  x_i <- sum_j W_ij x_j + u_i   (the paper's; x travels while nodes train)
// W doubly stochastic, so the mean is kept. A lost message leaves its weight with the receiver.
// Bytes a message: 4 d.
#pragma once

#include "gossip/algorithms/mixer.h"
#include "gossip/algorithms/robust_mixing.h"

namespace starling::gossip {

template <class T>
class Dpsgd final : public Algorithm<T> {
 public:
  Dpsgd(bool adapt_first, const RobustOptions& robust, std::span<const T> model);

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  std::span<const Bounded> bounded() const override { return robust_.report(); }
  void conclude(const Links& links, std::span<const Received<T>> inbox) override;
  std::span<const T> model() const override { return x_; }
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(x_));
    return true;
  }

 private:
  bool adapt_first_;
  Vector<T> x_;     // what travels
  Vector<T> next_;  // combine-while-adapt: x + u until it is absorbed
  Message<T> message_;
  RobustMixing<T> robust_;
};

}  // namespace starling::gossip
