// SPDX-License-Identifier: Apache-2.0
// The weights of one step while they are laid, and the rules by which they are laid on a graph.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "topologies/mixing_matrix.h"

namespace starling::topologies {

using graph::Edge;

struct Step {
  std::vector<double> diagonal;  // [nodes]
  std::vector<MixingEntry> entries;

  // Nobody talks: the identity.
  static Step idle(Node nodes) { return {std::vector<double>(nodes, 1.0), {}}; }
  // W_ab = W_ba = weight, taken from both diagonals.
  void exchange(Node a, Node b, double weight);
  // The mean over `members` for each of them.
  void average(std::span<const Node> members);
};

// Every node i sends to (i + offset) mod nodes with `weight`, and keeps `self`. Offsets are
// distinct and none is 0 modulo nodes.
struct Shift {
  Node offset = 0;
  double weight = 0;
};
Step circulant(Node nodes, double self, std::span<const Shift> shifts);

// Metropolis-Hastings on undirected edges.
Step metropolis(Node nodes, std::span<const Edge> edges);

// `own` as it is, or with the weights of a rule of kMixingRules on the same messages. Fails with
// "topology-spec" where the rule does not suit them: metropolis on a graph that is directed and not
// regular.
[[nodiscard]] Result<MixingMatrix> lay(Step own, std::string_view rule);

// Whether some message is not answered.
bool is_directed(const MixingMatrix& matrix);

}  // namespace starling::topologies
