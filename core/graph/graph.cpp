// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph.h"

#include <algorithm>
#include <string>

#include "core/graph/traversal.h"

namespace starling::graph {
namespace {

struct Adjacency {
  std::vector<std::uint64_t> begin;  // [nodes + 1]
  std::vector<Node> to;
};

std::string text_of(const Edge& edge) {
  return std::to_string(edge.from) + "-" + std::to_string(edge.to);
}

Result<void> check_edges(Node nodes, const std::vector<Edge>& sorted) {
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const Edge& edge = sorted[i];
    if (edge.from >= nodes || edge.to >= nodes) {
      return rejected("bad-graph", "the edge " + text_of(edge) +
                                       " names a node that does not exist; the nodes are 0 to " +
                                       std::to_string(nodes - 1));
    }
    if (edge.from == edge.to) {
      return rejected("bad-graph", "the edge " + text_of(edge) + " joins a node to itself");
    }
    if (i > 0 && sorted[i - 1] == edge) {
      return rejected("bad-graph", "the edge " + text_of(edge) + " stands twice");
    }
  }
  return {};
}

// Rows come out ascending, because `edges` is sorted by (from, to). With `both`, each edge also
// stands at its other end, and rows are merged from two ascending runs.
Adjacency adjacency(Node nodes, const std::vector<Edge>& edges, bool forward, bool backward) {
  Adjacency result;
  result.begin.assign(std::size_t{nodes} + 1, 0);
  for (const Edge& edge : edges) {
    if (forward) ++result.begin[edge.from + 1];
    if (backward) ++result.begin[edge.to + 1];
  }
  for (std::size_t i = 1; i <= nodes; ++i) result.begin[i] += result.begin[i - 1];
  result.to.resize(result.begin[nodes]);
  std::vector<std::uint64_t> next(result.begin.begin(), result.begin.end() - 1);
  // Predecessors first: of an undirected graph (from < to) they are the smaller neighbours.
  for (const Edge& edge : edges) {
    if (backward) result.to[next[edge.to]++] = edge.from;
  }
  for (const Edge& edge : edges) {
    if (forward) result.to[next[edge.from]++] = edge.to;
  }
  return result;
}

std::span<const Node> row(const std::vector<std::uint64_t>& begin, const std::vector<Node>& to,
                          Node node) {
  return std::span(to).subspan(begin[node], begin[node + 1] - begin[node]);
}

}  // namespace

Result<Graph> Graph::make(Node nodes, bool directed, std::vector<Edge> edges) {
  if (nodes == 0) return rejected("bad-graph", "a graph needs at least one node");
  if (!directed) {
    for (Edge& edge : edges) {
      if (edge.from > edge.to) std::swap(edge.from, edge.to);
    }
  }
  if (!std::ranges::is_sorted(edges)) std::ranges::sort(edges);
  STARLING_TRY(check_edges(nodes, edges));
  Graph graph;
  graph.directed_ = directed;
  graph.edges_ = edges.size();
  Adjacency out = adjacency(nodes, edges, true, !directed);
  graph.out_begin_ = std::move(out.begin);
  graph.out_ = std::move(out.to);
  if (directed) {
    Adjacency in = adjacency(nodes, edges, false, true);
    graph.in_begin_ = std::move(in.begin);
    graph.in_ = std::move(in.to);
  }
  return graph;
}

std::span<const Node> Graph::successors(Node node) const { return row(out_begin_, out_, node); }

std::span<const Node> Graph::predecessors(Node node) const {
  return directed_ ? row(in_begin_, in_, node) : successors(node);
}

bool is_connected(const Graph& graph) {
  return eccentricity(graph, 0) != kUnreachable &&
         (!graph.directed() || std::ranges::max(distances_to(graph, 0)) != kUnreachable);
}

bool is_tree(const Graph& graph) {
  return !graph.directed() && graph.edges() + 1 == graph.nodes() && is_connected(graph);
}

bool is_bipartite(const Graph& graph) { return bipartition(graph).has_value(); }

std::optional<std::vector<std::uint8_t>> bipartition(const Graph& graph) {
  constexpr std::uint8_t kNone = 2;
  std::vector<std::uint8_t> part(graph.nodes(), kNone);
  std::vector<Node> queue;
  for (Node root = 0; root < graph.nodes(); ++root) {
    if (part[root] != kNone) continue;
    part[root] = 0;
    queue.assign(1, root);
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const Node node = queue[at];
      const auto other = static_cast<std::uint8_t>(1 - part[node]);
      for (const auto neighbours : {graph.successors(node), graph.predecessors(node)}) {
        for (const Node next : neighbours) {
          if (part[next] == part[node]) return std::nullopt;
          if (part[next] != kNone) continue;
          part[next] = other;
          queue.push_back(next);
        }
      }
    }
  }
  return part;
}

std::optional<Node> diameter(const Graph& graph) {
  Node longest = 0;
  for (Node node = 0; node < graph.nodes(); ++node) {
    const Node here = eccentricity(graph, node);
    if (here == kUnreachable) return std::nullopt;
    longest = std::max(longest, here);
  }
  return longest;
}

}  // namespace starling::graph
