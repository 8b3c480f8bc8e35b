// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient push (sgp.h) where messages get lost: x and w live in a MassLedger, so that
// no mass is lost with a message, only late. Every receiver gets its edge's own total. The share of
// a receiver that is absent stays here: on its edge, mass would add up and never come back.
// Deviations: x <- x + min(1, 8 w) u. A node that received nothing for long has a small w, and z
// would move by u / w a step. If all mixing matrices are doubly stochastic (`balanced`), the factor
// below w = 1/2 is max(w, 4 w^2) instead: z moves by 2 u at most, and by u below w = 1/4, where the
// ledger leaves weights that a member takes. Above w = 2 it is w / 2, so that z moves by u / 2 at
// least. Bytes a message: 8 (d + 1), twice those of sgp.
#pragma once

#include <optional>

#include "gossip/algorithms/mass_ledger.h"
#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

template <class T>
class LossySgp final : public Algorithm<T> {
 public:
  LossySgp(Node members, bool balanced, std::span<const T> model);

  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links& links, std::span<const Received<T>> inbox) override;
  std::span<const T> model() const override { return z_; }
  bool can_read(Node from, std::span<const std::byte> packed) const override {
    return ledger_.is_plausible(from, packed);
  }
  std::optional<Unpacked<T>> unpack(Node from, const Message<T>& message) const override;
  // Edges keep their totals.
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override {
    ledger_.archive(state);
    state.elements(std::span(z_));
    return true;
  }
  // All begin with weight 1, and edges with nothing.
  void regroup(const Plan& plan, const Links& links, const LocalPhase* trained) override;
  // The mass that is here, so that a restart makes none. What is on the edges is lost with them.
  void visit_state(StateVisitor& state) override;

  bool counts_on_edges() const override { return true; }
  void forget(Node other) override { ledger_.forget(other); }
  std::optional<Node> drained_by() override { return ledger_.take_drained_by(); }

  const MassLedger& ledger() const { return ledger_; }

 private:
  void push(const Links& links);

  MassLedger ledger_;
  Vector<T> z_;
  Vector<T> update_;                  // of the last local steps
  std::vector<Message<T>> messages_;  // by receiver
};

}  // namespace starling::gossip
