// SPDX-License-Identifier: Apache-2.0
// DeTAG (Lu and De Sa, ICML 2021): phases of R exchanges; g_k is the mean of R gradients at x_k,
//   x_{k+1} = AG_R(x_k) - eta AG_R(y_k),  y_{k+1} = AG_R(y_k) + g_k - g_{k-1},  y_0 = g_{-1} = 0
// where AG_R is R times z' = (1 + a) W z - a z_before, z_before = z at first, with
//   a = (1 - sqrt(1 - rho^2)) / (1 + sqrt(1 - rho^2)), rho the second largest modulus of W.
// W symmetric and the same at every step; no message may be lost. Bytes a message: 8 d.
#pragma once

#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

// a for a matrix of second largest modulus `slem`.
double acceleration(double slem);
// The least R with which R rounds of AG shrink every disagreement to a quarter or less.
int accelerated_rounds(double slem);

template <class T>
class Detag final : public Algorithm<T> {
 public:
  // Requires: rounds >= 1, the same at all nodes.
  Detag(double slem, int rounds, std::span<const T> model);

  // Gradients, not steps: H > 1 takes H samples an exchange, and the optimizer is not used. eta is
  // that of the phase's last exchange.
  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links& links, std::span<const Received<T>> inbox) override;
  std::span<const T> model() const override { return x_; }  // x_k, while the next one is mixed
  // Starts a tracker of its own at 0, from the next phase on. Only the model outlives a process.
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override;
  // y = g_{k-1} at every node: sum y = sum g_{k-1} holds whoever is there, and no gradient is lost.
  // Mixing of y begins anew, that of x goes on from where it is.
  void regroup(const Plan& plan, const Links& links, const LocalPhase* trained) override;

 private:
  template <class S>
  struct Gossip {  // z and z_before
    Vector<S> now;
    Vector<S> before;
  };
  void show(const LocalPhase& phase);
  void end_phase();

  double acceleration_;
  std::uint64_t rounds_;
  Vector<T> x_;
  Gossip<T> mixed_x_;
  Gossip<double> mixed_y_;  // in double for the reason that gradient_tracking.h gives
  Vector<T> shown_y_;       // mixed_y_.now as it travels
  Vector<T> sum_;           // of the phase's gradients
  Vector<T> previous_;      // g_{k-1}
  Vector<T> sample_;
  double samples_ = 0;
  double rate_ = 0;
  std::uint64_t round_ = 0;  // of the phase, from 0
  Message<T> message_;
};

}  // namespace starling::gossip
