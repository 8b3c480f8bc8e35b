// SPDX-License-Identifier: Apache-2.0
// An immutable graph on the nodes 0 .. n-1: who may send to whom. Knows nothing of weights, models
// or the network.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.h"

namespace starling::graph {

using Node = std::uint32_t;

struct Edge {
  Node from = 0;
  Node to = 0;
  friend auto operator<=>(const Edge&, const Edge&) = default;
};

class Graph {
 public:
  // An undirected graph takes each edge once, in either direction. Fails with "bad-graph" where an
  // edge is a loop, stands twice or names a node that does not exist. O(nodes + edges log edges).
  [[nodiscard]] static Result<Graph> make(Node nodes, bool directed, std::vector<Edge> edges);

  Node nodes() const { return static_cast<Node>(out_begin_.size() - 1); }
  bool directed() const { return directed_; }
  // Undirected edges count once.
  std::uint64_t edges() const { return edges_; }
  // Ascending. Valid as long as the graph. Of an undirected graph both are the neighbours.
  std::span<const Node> successors(Node node) const;
  std::span<const Node> predecessors(Node node) const;

 private:
  Graph() = default;

  bool directed_ = false;
  std::uint64_t edges_ = 0;
  std::vector<std::uint64_t> out_begin_;  // [nodes + 1]
  std::vector<Node> out_;
  std::vector<std::uint64_t> in_begin_;  // empty where undirected
  std::vector<Node> in_;
};

// Strongly connected, for a directed graph. O(nodes + edges).
bool is_connected(const Graph& graph);
bool is_tree(const Graph& graph);       // connected and without a cycle; false for directed graphs
bool is_bipartite(const Graph& graph);  // the directions of edges ignored
// 0 or 1 a node where the graph is bipartite, every edge between the two; node 0 is in part 0.
std::optional<std::vector<std::uint8_t>> bipartition(const Graph& graph);
// The longest shortest path, exactly: O(nodes * edges). Nothing where it is not connected.
std::optional<Node> diameter(const Graph& graph);

}  // namespace starling::graph
