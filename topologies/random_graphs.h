// SPDX-License-Identifier: Apache-2.0
// Random graphs as edge lists. Only integers and products of doubles decide, never a library's
// logarithm, so that a seed gives the same graph on every machine.
#pragma once

#include <optional>
#include <vector>

#include "core/base/rng.h"
#include "core/graph/graph.h"

namespace starling::topologies {

using graph::Edge;
using graph::Node;

// A d-regular graph: free ends are paired at random, those that would give a loop or a double edge
// again (Steger and Wormald 1999); beyond half of all edges, the complement of one. Nothing where
// the pairing got stuck; draw again. Requires: d < nodes, nodes * d even.
std::optional<std::vector<Edge>> draw_regular(Node nodes, Node d, Rng& rng);

// Each pair with probability p. O(edges). Requires: 0 <= p <= 1.
std::vector<Edge> draw_erdos_renyi(Node nodes, double p, Rng& rng);

// A ring lattice of k neighbours, each of whose edges is led to a random node instead with
// probability beta (Watts and Strogatz 1998). Requires: k even, k < nodes.
std::vector<Edge> draw_watts_strogatz(Node nodes, Node k, double beta, Rng& rng);

// A star of m + 1 nodes; then each node joins m others, drawn in proportion to their degrees
// (Barabasi and Albert 1999). Requires: 1 <= m < nodes.
std::vector<Edge> draw_barabasi_albert(Node nodes, Node m, Rng& rng);

}  // namespace starling::topologies
