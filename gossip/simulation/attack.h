// SPDX-License-Identifier: Apache-2.0
// Nodes that lie: they know all honest models, and all of them send the same forged one. A liar
// trains and mixes as the others do; nobody measures it.
#pragma once

#include <span>
#include <vector>

#include "core/base/compute_pool.h"
#include "gossip/algorithms/algorithm.h"
#include "gossip/simulation/experiment.h"

namespace starling::gossip {

// "attack": an algorithm whose messages are no models, or nobody left who is honest.
[[nodiscard]] Result<void> check_attack(const NetOptions& options);

class Attack {
 public:
  // Draws the liars from the run's seed.
  explicit Attack(const Experiment& experiment);

  bool is_on() const { return !liars_.empty(); }
  bool is_liar(Node node) const { return is_on() && liars_[node]; }

  // The message of this exchange from those of the honest nodes, [d] each; without any it stays the
  // last one. O(honest nodes * d). The result does not depend on the number of threads.
  void forge(std::span<const std::span<const float>> honest, ComputePool& pool);
  // Valid until the next forge().
  const Message<float>& message() const { return message_; }
  void archive(Archive& state) { state.elements(std::span(forged_)); }

 private:
  AttackOptions options_;
  std::vector<bool> liars_;    // [nodes]; empty: nobody
  std::vector<float> forged_;  // [d]
  Message<float> message_;
};

}  // namespace starling::gossip
