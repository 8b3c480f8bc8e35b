// SPDX-License-Identifier: Apache-2.0
// Breadth-first distances, and bounds of the diameter where the exact one takes too long.
#pragma once

#include <limits>
#include <vector>

#include "core/graph/graph.h"

namespace starling::graph {

inline constexpr Node kUnreachable = std::numeric_limits<Node>::max();

// The number of edges of the shortest path from `source` to each node, along the edges' direction.
// O(nodes + edges). Requires: source < nodes.
std::vector<Node> distances(const Graph& graph, Node source);
// Against the edges' direction: from each node to `target`.
std::vector<Node> distances_to(const Graph& graph, Node target);

// The largest finite or infinite distance: kUnreachable where some node is.
Node eccentricity(const Graph& graph, Node source);

// A lower bound of the diameter, from `sweeps` searches that each begin at the farthest node of the
// one before; exact on trees, most often exact elsewhere. Requires: connected.
Node diameter_at_least(const Graph& graph, int sweeps = 8);

}  // namespace starling::graph
