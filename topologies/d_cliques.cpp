// SPDX-License-Identifier: Apache-2.0
// D-Cliques (Bellet, Kermarrec, Lavoie, "D-Cliques: Compensating for Data Heterogeneity with
// Topology in Decentralized Federated Learning", SRDS 2022): fully connected cliques whose labels
// together look like everybody's, sparsely joined.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "topologies/family.h"

namespace starling::topologies {
namespace {

constexpr std::array<std::string_view, 4> kInter = {"small-world", "full", "ring", "fractal"};
// Pairs of cliques that are tried for a swap, for each clique.
constexpr std::uint64_t kSwapsPerClique = 50;

using Clique = std::vector<Node>;
using Counts = std::vector<std::vector<std::uint32_t>>;
using Histogram = std::vector<double>;

// A random order cut into cliques of at most m nodes, of even sizes.
std::vector<Clique> random_cliques(Node nodes, Node m, Rng& rng) {
  std::vector<Node> order(nodes);
  std::iota(order.begin(), order.end(), Node{0});
  rng.shuffle(std::span(order));
  std::vector<Clique> cliques((std::uint64_t{nodes} + m - 1) / m);
  for (Node i = 0; i < nodes; ++i) cliques[i % cliques.size()].push_back(order[i]);
  return cliques;
}

class SkewSearch {
 public:
  SkewSearch(const Counts& counts, std::vector<Clique>& cliques)
      : counts_(counts), cliques_(cliques), all_(counts[0].size()), sums_(cliques.size(), all_) {
    for (std::size_t c = 0; c < cliques.size(); ++c) {
      for (const Node node : cliques[c]) add(sums_[c], node, 1);
    }
    for (const Histogram& sum : sums_) {
      for (std::size_t y = 0; y < all_.size(); ++y) all_[y] += sum[y];
    }
    const double total = std::accumulate(all_.begin(), all_.end(), 0.0);
    for (double& share : all_) share = total > 0 ? share / total : 0;
  }

  // The swap of one node each that lowers the skew of both cliques together the most, if any does.
  void improve(std::size_t a, std::size_t b) {
    constexpr double kLeastGain = 1e-12;  // below it rounding would decide
    double best = skew(sums_[a]) + skew(sums_[b]) - kLeastGain;
    std::optional<std::pair<std::size_t, std::size_t>> swap;
    for (std::size_t i = 0; i < cliques_[a].size(); ++i) {
      for (std::size_t j = 0; j < cliques_[b].size(); ++j) {
        const double skews = after(a, b, cliques_[a][i], cliques_[b][j]);
        if (skews >= best) continue;
        best = skews;
        swap = {i, j};
      }
    }
    if (!swap) return;
    Node& of_a = cliques_[a][swap->first];
    Node& of_b = cliques_[b][swap->second];
    add(sums_[a], of_a, -1);
    add(sums_[a], of_b, 1);
    add(sums_[b], of_b, -1);
    add(sums_[b], of_a, 1);
    std::swap(of_a, of_b);
  }

 private:
  void add(Histogram& sum, Node node, double sign) const {
    for (std::size_t y = 0; y < sum.size(); ++y) sum[y] += sign * counts_[node][y];
  }
  // sum_y |p_C(y) - p(y)|
  double skew(const Histogram& sum) const {
    double rows = 0;
    for (const double count : sum) rows += count;
    double result = 0;
    for (std::size_t y = 0; y < sum.size(); ++y) {
      result += std::abs((rows > 0 ? sum[y] / rows : 0) - all_[y]);
    }
    return result;
  }
  double after(std::size_t a, std::size_t b, Node of_a, Node of_b) {
    first_ = sums_[a];
    second_ = sums_[b];
    for (std::size_t y = 0; y < all_.size(); ++y) {
      const double moved = static_cast<double>(counts_[of_b][y]) - counts_[of_a][y];
      first_[y] += moved;
      second_[y] -= moved;
    }
    return skew(first_) + skew(second_);
  }

  const Counts& counts_;
  std::vector<Clique>& cliques_;
  Histogram all_;                // p(y)
  std::vector<Histogram> sums_;  // of each clique
  Histogram first_, second_;
};

void even_out_labels(const Counts& counts, std::vector<Clique>& cliques, Rng& rng) {
  if (cliques.size() < 2) return;
  SkewSearch search(counts, cliques);
  for (std::uint64_t i = 0; i < kSwapsPerClique * cliques.size(); ++i) {
    const auto a = rng.below(cliques.size());
    const auto b = (a + 1 + rng.below(cliques.size() - 1)) % cliques.size();
    search.improve(a, b);
  }
}

// Edges inside cliques and between them; each new one leaves from the node of its clique that has
// the fewest edges to others.
class Joiner {
 public:
  Joiner(Node nodes, const std::vector<Clique>& cliques) : outside_(nodes) {
    for (const Clique& clique : cliques) {
      for (std::size_t i = 0; i < clique.size(); ++i) {
        for (std::size_t j = i + 1; j < clique.size(); ++j)
          edges_.push_back({clique[i], clique[j]});
      }
    }
  }
  void join(const Clique& one, const Clique& other) {
    const Node a = least_joined(one);
    const Node b = least_joined(other);
    const Edge edge{std::min(a, b), std::max(a, b)};
    if (!between_.insert(std::uint64_t{edge.from} << 32 | edge.to).second) return;
    edges_.push_back(edge);
    ++outside_[a];
    ++outside_[b];
  }
  std::vector<Edge> take() && { return std::move(edges_); }

 private:
  Node least_joined(const Clique& clique) const {
    return *std::ranges::min_element(clique, {}, [&](Node node) { return outside_[node]; });
  }

  std::vector<Edge> edges_;
  std::vector<Node> outside_;  // edges to other cliques of each node
  std::unordered_set<std::uint64_t> between_;
};

void join_ring(const std::vector<Clique>& cliques, Joiner& joiner) {
  for (std::size_t c = 0; c + 1 < cliques.size(); ++c) joiner.join(cliques[c], cliques[c + 1]);
  if (cliques.size() > 2) joiner.join(cliques.back(), cliques.front());
}

void join_full(const std::vector<Clique>& cliques, Joiner& joiner) {
  for (std::size_t a = 0; a < cliques.size(); ++a) {
    for (std::size_t b = a + 1; b < cliques.size(); ++b) joiner.join(cliques[a], cliques[b]);
  }
}

// On a ring of cliques, each joins the two that follow at the distances 1, 2, 4, ... on either
// side.
void join_small_world(const std::vector<Clique>& cliques, Joiner& joiner) {
  constexpr std::size_t kClosest = 2;
  const std::size_t count = cliques.size();
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t distance = 1; distance < count; distance *= 2) {
      for (std::size_t hop = distance; hop < distance + kClosest; ++hop) {
        if (hop % count == 0) continue;
        joiner.join(cliques[c], cliques[(c + hop) % count]);
        joiner.join(cliques[c], cliques[(c + count - hop % count) % count]);
      }
    }
  }
}

// m cliques are joined each with each to a group, m groups likewise, until one is left.
void join_fractal(std::vector<Clique> groups, Node m, Joiner& joiner) {
  while (groups.size() > 1) {
    std::vector<Clique> larger;
    for (std::size_t begin = 0; begin < groups.size(); begin += m) {
      const std::size_t end = std::min<std::size_t>(begin + m, groups.size());
      Clique all;
      for (std::size_t a = begin; a < end; ++a) {
        for (std::size_t b = a + 1; b < end; ++b) joiner.join(groups[a], groups[b]);
        all.insert(all.end(), groups[a].begin(), groups[a].end());
      }
      larger.push_back(std::move(all));
    }
    groups = std::move(larger);
  }
}

Result<void> check_counts(const Request& request) {
  const Counts& counts = request.options.label_counts;
  if (counts.empty()) return {};
  if (counts.size() != request.nodes()) {
    return request.wrong(fmt::format("was given the label counts of {} nodes, not of {}",
                                     counts.size(), request.nodes()));
  }
  for (const auto& row : counts) {
    if (row.size() == counts[0].size() && !row.empty()) continue;
    return request.wrong("was given label counts with different numbers of classes");
  }
  return {};
}

double messages_of(Node nodes, Node m, std::string_view inter) {
  const double cliques = std::ceil(static_cast<double>(nodes) / m);
  const double between = inter == "full" ? cliques : 8 * ceil_log(nodes, 2);  // a clique, at most
  return static_cast<double>(nodes) * (m - 1.0) + cliques * between;
}

}  // namespace

Result<Blueprint> d_cliques(const Request& request) {
  Node m = 10;
  std::string inter(kInter[0]);
  FieldCollector visit("");
  visit("m", m, {.help = "nodes of a clique", .min = 2, .max = 1e6});
  visit("inter", inter, {.help = "how cliques are joined", .choices = kInter});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  STARLING_TRY(check_counts(request));
  STARLING_TRY(request.check_messages(messages_of(request.nodes(), m, inter)));
  Rng rng = request.rng();
  std::vector<Clique> cliques = random_cliques(request.nodes(), m, rng);
  if (!request.options.label_counts.empty()) {
    even_out_labels(request.options.label_counts, cliques, rng);
  }
  Joiner joiner(request.nodes(), cliques);
  if (inter == "ring") {
    join_ring(cliques, joiner);
  } else if (inter == "full") {
    join_full(cliques, joiner);
  } else if (inter == "fractal") {
    join_fractal(std::move(cliques), m, joiner);
  } else {
    join_small_world(cliques, joiner);
  }
  return Blueprint::fixed(std::move(name), metropolis(request.nodes(), std::move(joiner).take()));
}

}  // namespace starling::topologies
