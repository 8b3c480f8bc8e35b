// SPDX-License-Identifier: Apache-2.0
#include "topologies/random_graphs.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_set>

#include "core/base/check.h"

namespace starling::topologies {
namespace {

Edge ordered(Node a, Node b) { return a < b ? Edge{a, b} : Edge{b, a}; }

std::uint64_t key(Node a, Node b) {
  const Edge edge = ordered(a, b);
  return std::uint64_t{edge.from} << 32 | edge.to;
}

// At most d neighbours a node, side by side.
class Neighbours {
 public:
  Neighbours(Node nodes, Node d) : d_(d), count_(nodes), neighbours_(std::size_t{nodes} * d) {}

  bool joined(Node a, Node b) const {
    const Node* row = &neighbours_[std::size_t{a} * d_];
    return std::find(row, row + count_[a], b) != row + count_[a];
  }
  void join(Node a, Node b) {
    neighbours_[std::size_t{a} * d_ + count_[a]++] = b;
    neighbours_[std::size_t{b} * d_ + count_[b]++] = a;
  }

 private:
  std::size_t d_;
  std::vector<Node> count_;
  std::vector<Node> neighbours_;
};

bool some_pair_is_free(std::vector<Node> ends, const Neighbours& neighbours) {
  std::ranges::sort(ends);
  ends.erase(std::ranges::unique(ends).begin(), ends.end());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    for (std::size_t j = i + 1; j < ends.size(); ++j) {
      if (!neighbours.joined(ends[i], ends[j])) return true;
    }
  }
  return false;
}

std::vector<Edge> complement(Node nodes, const std::vector<Edge>& edges) {
  std::vector<Edge> sorted = edges;
  std::ranges::sort(sorted);
  std::vector<Edge> result;
  auto next = sorted.begin();
  for (Node i = 0; i < nodes; ++i) {
    for (Node j = i + 1; j < nodes; ++j) {
      if (next != sorted.end() && *next == Edge{i, j}) {
        ++next;
      } else {
        result.push_back({i, j});
      }
    }
  }
  return result;
}

// floor(log(u) / log(q)) for q < 1: how many pairs are passed over before the next edge, from
// powers q^1, q^2, q^4, ... that are products alone.
class Skip {
 public:
  explicit Skip(double q) {
    for (double& power : powers_) {
      power = q;
      q *= q;
    }
  }
  std::uint64_t draw(Rng& rng) const {
    const double u = 1 - rng.uniform();  // (0, 1]
    double product = 1;
    std::uint64_t skip = 0;
    for (std::size_t bit = powers_.size(); bit-- > 0;) {
      if (product * powers_[bit] < u) continue;
      product *= powers_[bit];
      skip += std::uint64_t{1} << bit;
    }
    return skip;
  }

 private:
  std::array<double, 62> powers_;
};

}  // namespace

std::optional<std::vector<Edge>> draw_regular(Node nodes, Node d, Rng& rng) {
  STARLING_CHECK(d < nodes && std::uint64_t{nodes} * d % 2 == 0);
  if (d > (nodes - 1) / 2) {
    const auto rest = draw_regular(nodes, nodes - 1 - d, rng);
    if (!rest) return std::nullopt;
    return complement(nodes, *rest);
  }
  std::vector<Node> ends(std::size_t{nodes} * d);
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = static_cast<Node>(i / d);
  Neighbours neighbours(nodes, d);
  std::vector<Edge> edges;
  edges.reserve(ends.size() / 2);
  std::vector<Node> left;
  while (!ends.empty()) {
    rng.shuffle(std::span(ends));
    left.clear();
    for (std::size_t i = 0; i < ends.size(); i += 2) {
      const Node a = ends[i];
      const Node b = ends[i + 1];
      if (a == b || neighbours.joined(a, b)) {
        left.insert(left.end(), {a, b});
      } else {
        neighbours.join(a, b);
        edges.push_back(ordered(a, b));
      }
    }
    if (left.size() == ends.size() && !some_pair_is_free(left, neighbours)) return std::nullopt;
    ends.swap(left);
  }
  return edges;
}

std::vector<Edge> draw_erdos_renyi(Node nodes, double p, Rng& rng) {
  std::vector<Edge> edges;
  if (p <= 0) return edges;
  const Skip skip(1 - p);
  // The pair (row, column), column > row, pairs in the order of rows.
  Node row = 0;
  std::uint64_t column = 0;
  while (true) {
    column += 1 + (p < 1 ? skip.draw(rng) : 0);
    while (column >= nodes) {
      ++row;
      if (row + 1 >= nodes) return edges;
      column = column - nodes + row + 1;
    }
    edges.push_back({row, static_cast<Node>(column)});
  }
}

std::vector<Edge> draw_watts_strogatz(Node nodes, Node k, double beta, Rng& rng) {
  STARLING_CHECK(k % 2 == 0 && k < nodes);
  std::unordered_set<std::uint64_t> joined;
  std::vector<Edge> edges;
  std::vector<Node> degree(nodes, k);
  for (Node distance = 1; distance <= k / 2; ++distance) {
    for (Node i = 0; i < nodes; ++i) {
      edges.push_back({i, static_cast<Node>((std::uint64_t{i} + distance) % nodes)});
      joined.insert(key(edges.back().from, edges.back().to));
    }
  }
  for (Edge& edge : edges) {
    if (rng.uniform() >= beta || degree[edge.from] >= nodes - 1) continue;
    Node to = edge.to;
    while (to == edge.from || joined.contains(key(edge.from, to))) {
      to = static_cast<Node>(rng.below(nodes));
    }
    joined.erase(key(edge.from, edge.to));
    joined.insert(key(edge.from, to));
    --degree[edge.to];
    ++degree[to];
    edge.to = to;
  }
  return edges;
}

std::vector<Edge> draw_barabasi_albert(Node nodes, Node m, Rng& rng) {
  STARLING_CHECK(m >= 1 && m < nodes);
  std::vector<Edge> edges;
  std::vector<Node> ends;  // each node as often as it has edges
  const auto join = [&](Node a, Node b) {
    edges.push_back(ordered(a, b));
    ends.insert(ends.end(), {a, b});
  };
  for (Node i = 1; i <= m; ++i) join(0, i);
  std::vector<Node> chosen;
  std::vector<Node> chosen_by(nodes, 0);  // node 0 never chooses
  for (Node node = m + 1; node < nodes; ++node) {
    chosen.clear();
    while (chosen.size() < m) {
      const Node other = ends[rng.below(ends.size())];
      if (chosen_by[other] == node) continue;
      chosen_by[other] = node;
      chosen.push_back(other);
    }
    for (const Node other : chosen) join(node, other);
  }
  return edges;
}

}  // namespace starling::topologies
