// SPDX-License-Identifier: Apache-2.0
// Topologies that repeat: few messages a step, and often exact after a period.
#include <fmt/format.h>

#include <bit>

#include "topologies/base_graph.h"
#include "topologies/family.h"

namespace starling::topologies {
namespace {

constexpr double kPeersMax = 1e6;

}  // namespace

// One-peer: W_t = (I + P^(2^t)) / 2, t modulo ceil(log2 n) (Ying et al., NeurIPS 2021).
Result<Blueprint> one_peer_exponential(const Request& request) {
  STARLING_ASSIGN(std::string name, request.read({}));
  const Node n = request.nodes();
  const unsigned period = std::max(1U, ceil_log(n, 2));
  return Blueprint{std::move(name), period, n > 2, [n](std::uint64_t t) {
                     if (n == 1) return Step::idle(1);
                     const Shift shift{Node{1} << t, 0.5};
                     return circulant(n, 0.5, {&shift, 1});
                   }};
}

// Step t sends to i + j (p+1)^t for j = 1 .. p, where these are other nodes (the exponential graph
// with p peers of Assran et al., ICML 2019); exact for n = (p+1)^m after m steps.
Result<Blueprint> p_peer_exponential(const Request& request) {
  Node peers = 2;
  FieldCollector visit("");
  visit("p", peers, {.help = "peers a step", .min = 1, .max = kPeersMax});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const Node n = request.nodes();
  STARLING_TRY(request.check_messages(static_cast<double>(n) * std::min(peers, n - 1)));
  const auto step = [n, peers](std::uint64_t t) {
    std::uint64_t stride = 1;
    for (std::uint64_t i = 0; i < t; ++i) stride *= std::uint64_t{peers} + 1;
    std::vector<Shift> shifts;
    for (std::uint64_t j = 1; j <= peers && j * stride < n; ++j) {
      shifts.push_back({static_cast<Node>(j * stride), 0});
    }
    const double weight = 1.0 / (static_cast<double>(shifts.size()) + 1);
    for (Shift& shift : shifts) shift.weight = weight;
    return circulant(n, weight, shifts);
  };
  return Blueprint{std::move(name), std::max(1U, ceil_log(n, std::uint64_t{peers} + 1)),
                   peers + 1 < n, step};
}

Result<Blueprint> one_peer_hypercube(const Request& request) {
  STARLING_ASSIGN(std::string name, request.read({}));
  const Node n = request.nodes();
  if (!std::has_single_bit(n)) {
    return request.impossible(
        "a hypercube has a power of two; base-graph is exact for every number");
  }
  const auto dimensions = static_cast<unsigned>(std::countr_zero(n));
  return Blueprint{std::move(name), std::max(1U, dimensions), false, [n](std::uint64_t t) {
                     Step step = Step::idle(n);
                     for (Node i = 0; i < n && n > 1; ++i) {
                       const Node other = i ^ (Node{1} << t);
                       if (i < other) step.exchange(i, other, 0.5);
                     }
                     return step;
                   }};
}

Result<Blueprint> hyper_hypercube(const Request& request) {
  Node k = 1;
  FieldCollector visit("");
  visit("k", k, {.help = "neighbours a step at most", .min = 1, .max = kPeersMax});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const auto factors = factorize(request.nodes(), k + 1);
  if (!factors) {
    return request.impossible(
        fmt::format("it has a prime factor above k + 1 = {}; base-graph:k={} "
                    "is exact for every number",
                    k + 1, k));
  }
  STARLING_TRY(
      request.check_messages(static_cast<double>(request.nodes()) * std::min(k, request.nodes())));
  return Blueprint{std::move(name), std::max<std::size_t>(1, factors->size()), false,
                   [n = request.nodes(), factors = *factors](std::uint64_t t) {
                     Step step = Step::idle(n);
                     if (!factors.empty()) hyper_hypercube_step(factors, t, {0, n, 1}, step);
                     return step;
                   }};
}

Result<Blueprint> base_graph(const Request& request) {
  Node k = 1;
  FieldCollector visit("");
  visit("k", k, {.help = "neighbours a step at most", .min = 1, .max = kPeersMax});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  STARLING_TRY(
      request.check_messages(static_cast<double>(request.nodes()) * std::min(k, request.nodes())));
  const BaseGraph graph(request.nodes(), k);
  return Blueprint{std::move(name), graph.length(), false,
                   [graph](std::uint64_t t) { return graph.step(t); }};
}

}  // namespace starling::topologies
