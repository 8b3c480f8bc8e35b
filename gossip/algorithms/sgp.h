// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient push (Assran, Loizou, Ballas, Rabbat, ICML 2019) where every message comes:
//   x_i <- sum_j P_ij (x_j + u_j),  w_i <- sum_j P_ij w_j,  z_i = x_i / w_i
// with u of H local steps at z. P column-stochastic: sum w = n and sum x are kept. Bytes a message:
// 4 d + 8. Where messages are lost: lossy_sgp.h.
#pragma once

#include "gossip/algorithms/mass_ledger.h"
#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

// Deviation, equal in exact arithmetic: z is kept and travels instead of x, z_i <- z_i + sum_j
// (P_ij w_j / w_i') (z_j - z_i), so no rounding adds up in sum x, and equal models stay equal.
template <class T>
class Sgp final : public Algorithm<T> {
 public:
  Sgp(Node members, std::span<const T> model)
      : members_(members), z_(model.begin(), model.end()), next_(model.size()) {}

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links& links, std::span<const Received<T>> inbox) override;
  std::span<const T> model() const override { return z_; }
  bool can_weigh(double weight) const override { return MassLedger::can_weigh(weight, members_); }
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    state.elements(std::span(z_));
    state(weight_);
    return true;
  }
  // The weights are shares of what the members hold together: all begin with 1.
  void regroup(const Plan& plan, const Links& links, const LocalPhase* trained) override;
  // Its share of the weight, so that a restart makes none.
  void visit_state(StateVisitor& state) override { state.visit("weight", weight_); }

 private:
  Node members_;
  Vector<T> z_;
  Vector<T> next_;
  double weight_ = 1;
  Message<T> message_;
};

// x = from + (x - from) * factor: what local steps from `from` to x do to a node of weight
// 1 / factor.
template <class T>
void stretch(std::span<T> x, std::span<const T> from, double factor);

}  // namespace starling::gossip
