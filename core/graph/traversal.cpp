// SPDX-License-Identifier: Apache-2.0
#include "core/graph/traversal.h"

#include <algorithm>

namespace starling::graph {
namespace {

template <class Neighbours>
std::vector<Node> search(Node nodes, Node source, Neighbours neighbours) {
  std::vector<Node> distance(nodes, kUnreachable);
  std::vector<Node> queue{source};
  queue.reserve(nodes);
  distance[source] = 0;
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const Node node = queue[at];
    for (const Node next : neighbours(node)) {
      if (distance[next] != kUnreachable) continue;
      distance[next] = distance[node] + 1;
      queue.push_back(next);
    }
  }
  return distance;
}

}  // namespace

std::vector<Node> distances(const Graph& graph, Node source) {
  return search(graph.nodes(), source, [&](Node node) { return graph.successors(node); });
}

std::vector<Node> distances_to(const Graph& graph, Node target) {
  return search(graph.nodes(), target, [&](Node node) { return graph.predecessors(node); });
}

Node eccentricity(const Graph& graph, Node source) {
  return std::ranges::max(distances(graph, source));
}

Node diameter_at_least(const Graph& graph, int sweeps) {
  Node longest = 0;
  Node source = 0;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    // Along and against the direction in turn, so that a directed graph is swept both ways.
    const std::vector<Node> distance =
        sweep % 2 == 0 ? distances(graph, source) : distances_to(graph, source);
    const auto farthest = std::ranges::max_element(distance);
    longest = std::max(longest, *farthest);
    source = static_cast<Node>(farthest - distance.begin());
  }
  return longest;
}

}  // namespace starling::graph
