// SPDX-License-Identifier: Apache-2.0
// Asynchronous gradient push (Assran and Rabbat, IEEE TAC 2020): push-sum without steps. A node
// holds mass (x, w) and trains at z = x / w; after a local phase it pushes W_ji (x, w) to each
// receiver j; what comes is added. sum w = n and sum x are kept, what is on its way counted (but
// see MassLedger::settle()). Bytes a message: 4 d + 8; where messages are lost 8 (d + 1), by
// MassLedger.
#pragma once

#include <optional>
#include <unordered_map>

#include "gossip/algorithms/async_algorithm.h"
#include "gossip/algorithms/mass_ledger.h"
#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

// Deviation: x <- x + w u instead of x + u, so that z moves by its local steps u. Who is faster
// pushes more often and so holds less mass: with W doubly stochastic all nodes' data count alike,
// where x + u would favour the fast ones and stretch their steps by 1 / w.
template <class T>
class PushSum final : public AsyncAlgorithm<T> {
 public:
  // `lossy`: all mixing matrices are doubly stochastic, as check_fit() sees to.
  PushSum(bool lossy, Node members, std::span<const T> model);

  std::span<const T> model() const override { return z_; }
  // A node with next to no mass (2^-16) keeps it until some comes.
  std::vector<AsyncSend<T>> trained(std::span<const T> update, const Links& links,
                                    Rng& rng) override;
  // Messages of one sender may overtake each other.
  std::vector<AsyncSend<T>> receive(Node from, const AsyncMessage<T>& message) override;
  bool can_read(Node from, std::span<const std::byte> packed) const override;
  bool can_weigh(Node from, double weight) const override;
  std::optional<Unpacked<T>> unpack(Node from, const AsyncMessage<T>& message) const override;
  bool waiting() const override { return false; }
  void unanswered() override {}
  // Edges keep their totals, as LossySgp's do.
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override;
  // As LossySgp's.
  void visit_state(StateVisitor& state) override;

  bool counts_on_edges() const override { return ledger_.has_value(); }
  void forget(Node other) override;
  std::optional<Node> drained_by() override {
    return ledger_ ? ledger_->take_drained_by() : std::nullopt;
  }

  double weight() const override { return ledger_ ? ledger_->weight() : weight_; }
  const std::optional<MassLedger>& ledger() const { return ledger_; }

 private:
  bool brings_mass(Node from, const AsyncMessage<T>& message) const;
  std::vector<AsyncSend<T>> push(const Links& links);
  std::vector<AsyncSend<T>> push_totals(const Links& links);

  Node members_;
  Vector<T> z_;
  double weight_ = 1;                               // without a ledger
  std::unordered_map<Node, double> came_;           // the same: weight, since the last push here
  std::optional<MassLedger> ledger_;                // holds (x, w) where messages are lost
  std::uint64_t number_ = 0;                        // of the last push
  std::unordered_map<Node, std::uint64_t> newest_;  // number of the newest total that came
};

}  // namespace starling::gossip
