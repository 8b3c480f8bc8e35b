// SPDX-License-Identifier: Apache-2.0
// Topologies drawn once from the seed; drawn again until they are connected.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>

#include "core/graph/graph.h"
#include "topologies/family.h"
#include "topologies/random_graphs.h"

namespace starling::topologies {
namespace {

constexpr std::uint32_t kConnectedDrawsMax = 100;
constexpr double kDegreeMax = 1e6;
constexpr std::array<std::string_view, 2> kEdgeKinds = {"directed", "undirected"};

using Draw = std::function<std::optional<std::vector<Edge>>(Rng&)>;

Result<Blueprint> drawn_connected(const Request& request, std::string name, const Draw& draw,
                                  std::string_view remedy) {
  for (std::uint32_t attempt = 1; attempt <= kConnectedDrawsMax; ++attempt) {
    Rng rng = request.rng(0, attempt);
    auto edges = draw(rng);
    if (!edges) continue;
    Step step = metropolis(request.nodes(), *edges);
    STARLING_ASSIGN(const graph::Graph graph,
                    graph::Graph::make(request.nodes(), false, std::move(*edges)));
    if (graph::is_connected(graph)) return Blueprint::fixed(std::move(name), std::move(step));
  }
  return request.impossible(
      fmt::format("none of {} draws was connected; {}", kConnectedDrawsMax, remedy));
}

}  // namespace

Result<void> check_regular(const Request& request, Node d, std::string_view key) {
  const Node n = request.nodes();
  if (d >= n) {
    return request.impossible(fmt::format("{} must be less than the number of nodes", key));
  }
  if (std::uint64_t{n} * d % 2 != 0) {
    return request.impossible(
        fmt::format("nodes x {0} must be even; take {0}={1}{2}", key, d - 1,
                    d + 1 < n ? fmt::format(" or {}={}", key, d + 1) : std::string()));
  }
  return request.check_messages(static_cast<double>(n) * d);
}

Result<Blueprint> random_regular(const Request& request) {
  Node d = 4;
  FieldCollector visit("");
  visit("d", d, {.help = "neighbours of each node", .min = 1, .max = kDegreeMax});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const Node n = request.nodes();
  if (n == 1) return Blueprint::fixed(std::move(name), Step::idle(1));
  STARLING_TRY(check_regular(request, d, "d"));
  return drawn_connected(
      request, std::move(name), [&](Rng& rng) { return draw_regular(n, d, rng); },
      "take a larger d");
}

Result<Blueprint> erdos_renyi(const Request& request) {
  double p = 0.1;
  FieldCollector visit("");
  visit("p", p, {.help = "probability of each edge", .min = 0, .max = 1});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const Node n = request.nodes();
  if (n == 1) return Blueprint::fixed(std::move(name), Step::idle(1));
  STARLING_TRY(request.check_messages(static_cast<double>(n) * (n - 1.0) * p));
  return drawn_connected(
      request, std::move(name),
      [&](Rng& rng) { return std::optional(draw_erdos_renyi(n, p, rng)); },
      fmt::format("take p above ln(nodes) / nodes = {:.3g}", std::log(n) / n));
}

Result<Blueprint> watts_strogatz(const Request& request) {
  Node k = 4;
  double beta = 0.1;
  FieldCollector visit("");
  visit("k", k, {.help = "neighbours in the lattice, even", .min = 2, .max = kDegreeMax});
  visit("beta", beta, {.help = "probability that an edge is led elsewhere", .min = 0, .max = 1});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const Node n = request.nodes();
  if (k % 2 != 0) return request.wrong("needs an even k");
  if (n == 1) return Blueprint::fixed(std::move(name), Step::idle(1));
  if (k >= n) return request.impossible("k must be less than the number of nodes");
  STARLING_TRY(request.check_messages(static_cast<double>(n) * k));
  return drawn_connected(
      request, std::move(name),
      [&](Rng& rng) { return std::optional(draw_watts_strogatz(n, k, beta, rng)); },
      "take a larger k or a smaller beta");
}

Result<Blueprint> barabasi_albert(const Request& request) {
  Node m = 2;
  FieldCollector visit("");
  visit("m", m, {.help = "edges that each new node brings", .min = 1, .max = kDegreeMax});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const Node n = request.nodes();
  if (n == 1) return Blueprint::fixed(std::move(name), Step::idle(1));
  if (m >= n) return request.impossible("m must be less than the number of nodes");
  STARLING_TRY(request.check_messages(2.0 * n * m));
  return drawn_connected(
      request, std::move(name),
      [&](Rng& rng) { return std::optional(draw_barabasi_albert(n, m, rng)); }, "");
}

// W = 1/M sum_u [(n-1)/n P_u + 1/n I] over M shifts u drawn with replacement; undirected: half of
// each shift goes the other way (Song, Li, Jin, Shi, Yan, Yin, Yuan, "Communication-Efficient
// Topologies for Decentralized Learning with O(1) Consensus Rate", NeurIPS 2022).
Result<Blueprint> equistatic(const Request& request) {
  const Node n = request.nodes();
  Node m = std::max(1U, ceil_log(n, 2));
  std::string kind(kEdgeKinds[0]);
  FieldCollector visit("");
  visit("m", m,
        {.help = "shifts drawn; ceil(log2(nodes)) unless given", .min = 1, .max = kDegreeMax});
  visit("kind", kind, {.help = "whether messages are answered", .choices = kEdgeKinds});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  if (n == 1) return Blueprint::fixed(std::move(name), Step::idle(1));
  const bool both_ways = kind == "undirected";
  STARLING_TRY(request.check_messages((both_ways ? 2.0 : 1.0) * n * std::min(m, n)));
  Rng rng = request.rng();
  std::vector<Node> times(n);  // each shift, in halves
  for (Node i = 0; i < m; ++i) {
    const auto shift = static_cast<Node>(1 + rng.below(n - 1));
    ++times[shift];
    ++times[both_ways ? n - shift : shift];
  }
  std::vector<Shift> shifts;
  for (Node offset = 1; offset < n; ++offset) {
    if (times[offset] == 0) continue;
    shifts.push_back({offset, times[offset] / (2.0 * m) * ((n - 1.0) / n)});
  }
  return Blueprint::fixed(std::move(name), circulant(n, 1.0 / n, shifts));
}

}  // namespace starling::topologies
