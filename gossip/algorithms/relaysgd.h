// SPDX-License-Identifier: Apache-2.0
// RelaySGD (RelaySum/Model: Vogels, He, Koloskova, Karimireddy, Lin, Stich, Jaggi, NeurIPS 2021) on
// a tree of n nodes, x after the local steps, k in N(i) \ j, c_ki and m_ki of the step before:
//   c_ij = 1 + sum_k c_ki,  m_ij = (x_i + sum_k c_ki m_ki) / c_ij,
//   x_i <- x_i + sum_j (c_ji / n) (m_ji - x_i)
// Bytes a message: 4 d + 8.
#pragma once

#include <cmath>
#include <vector>

#include "gossip/algorithms/mixer.h"

namespace starling::gossip {

// Deviation, equal in exact arithmetic: means m travel instead of sums, so equal models stay equal.
// A message that does not come counts 0, and its share falls to the node's own x.
template <class T>
class RelaySgd final : public Algorithm<T> {
 public:
  RelaySgd(Node nodes, std::span<const T> model) : nodes_(nodes), x_(model.begin(), model.end()) {}

  // Requires: links.senders and links.receivers name the same nodes, those of every call.
  Result<double> adapt(LocalTraining<T>& training, const LocalPhase& phase,
                       const Links& links) override;
  const Message<T>& message(std::size_t receiver) const override;
  void absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) override;
  void conclude(const Links& links, std::span<const Received<T>> inbox) override;
  std::span<const T> model() const override { return x_; }
  // A count is of nodes beyond the sender, and the sender.
  bool can_weigh(double count) const override {
    return count >= 1 && count < nodes_ && count == std::floor(count);
  }
  // Only the model outlives a process: sums that neighbours sent count in their next messages.
  void restart(std::span<const T> model) override;
  bool archive(Archive& state) override;
  // The tree is another one: nothing was relayed on it yet.
  void regroup(const Plan& plan, const Links& links, const LocalPhase* trained) override;

 private:
  struct Neighbour {
    Vector<T> came;    // m_ji of the last step
    double count = 0;  // c_ji of the last step, 0 where nothing came
    Vector<T> sent;    // m_ij
    Message<T> message;
  };
  void prepare(const Links& links);
  void relay(Columns part, double total);

  Node nodes_;
  Vector<T> x_;
  std::vector<Neighbour> neighbours_;  // in the order of the links
};

}  // namespace starling::gossip
