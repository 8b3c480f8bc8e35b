// SPDX-License-Identifier: Apache-2.0
// What the nodes of one process train with: the built-in models on rows of their own, or a custom
// trainer's processes. Simulations have all nodes of a network and as many threads as they like,
// peers one of each.
#pragma once

#include <cstdint>
#include <memory>

#include "gossip/algorithms/algorithm.h"

namespace starling::gossip {

class NodeTrainings {
 public:
  virtual ~NodeTrainings() = default;
  // For the node's local phase whose first step is `step`, on this thread: at most one a node and
  // one a thread at a time. Must not outlive this object.
  virtual std::unique_ptr<LocalTraining<float>> begin(Node node, unsigned thread,
                                                      std::uint64_t step) = 0;
  // After its model was replaced by another's: momentum of old gradients means nothing there.
  virtual void forget_momentum(Node node) = 0;
  // Where all nodes stand, between local phases; read into an object made of the same settings and
  // rows.
  virtual void archive(Archive& state) = 0;
};

}  // namespace starling::gossip
