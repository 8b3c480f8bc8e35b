// SPDX-License-Identifier: Apache-2.0
// Gradient tracking (DSGT: Di Lorenzo and Scutari 2016; Nedic, Olshevsky and Shi 2017; Pu and Nedic
// 2020), with H local steps as in K-GT (Liu, Lin, Koloskova, Stich, 2024), adapt-then-combine:
//   local steps x <- x - eta (g(x) + c),  z = (x_0 - x_H) / (H eta),
//   c <- c - z + W z,  x <- W x_H
// mean(c) = 0 must hold, so no message may be lost. Bytes a message: 8 d.
#pragma once

#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

// At H = 1, z is DSGT's y: y' = W y + g' - g, mean(y) = mean(g). Reaches the optimum at a constant
// rate, also on matrices that change.
template <class T>
class GradientTracking final : public Algorithm<T> {
 public:
  explicit GradientTracking(std::span<const T> model);

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links& links, std::span<const Received<T>> inbox) override;
  std::span<const T> model() const override { return x_; }
  // Only the model outlives a process: the corrections of all must cancel, so they begin anew
  // together.
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(x_));
    state.elements(std::span(correction_));
    return true;
  }
  // c = 0 at everybody, and z is the mean gradient of the trained steps: mean(c) stays 0 whoever
  // is there.
  void regroup(const Plan& plan, const Links& links, const LocalPhase* trained) override;

  // c, in units of the gradient; the mean over all nodes is 0.
  std::span<const double> correction() const { return correction_; }

 private:
  Vector<T> x_;
  Vector<T> next_;
  Vector<T> z_;
  // In double, and only ever changed by flows between neighbours that cancel to the bit: otherwise
  // mean(c) would walk away with the roundings, and the models after it.
  Vector<double> correction_;
  Message<T> message_;
};

}  // namespace starling::gossip
