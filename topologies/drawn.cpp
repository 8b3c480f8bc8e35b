// SPDX-License-Identifier: Apache-2.0
// Topologies drawn again for every step.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "topologies/family.h"
#include "topologies/random_graphs.h"

namespace starling::topologies {
namespace {

constexpr std::uint32_t kDrawsMax = 1000;
constexpr std::array<std::string_view, 2> kEpidemicKinds = {"oracle", "local"};
constexpr std::array<std::string_view, 2> kKinds = {"directed", "undirected"};

// What a draw of a step needs of the request, which it outlives.
struct Source {
  Node count;
  Draws draws;

  explicit Source(const Request& request) : count(request.nodes()), draws(request.draws()) {}
  Node nodes() const { return count; }
  Rng rng(std::uint64_t step, std::uint32_t attempt = 0) const { return draws(step, attempt); }
};

Step matching_step(const Source& source, std::uint64_t t) {
  std::vector<Node> order(source.nodes());
  std::iota(order.begin(), order.end(), Node{0});
  Rng rng = source.rng(t);
  rng.shuffle(std::span(order));
  Step step = Step::idle(source.nodes());
  for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
    step.exchange(order[i], order[i + 1], 0.5);
  }
  return step;
}

Step oracle_step(const Source& source, Node s, std::uint64_t t) {
  for (std::uint32_t attempt = 0; attempt < kDrawsMax; ++attempt) {
    Rng rng = source.rng(t, attempt);
    if (const auto edges = draw_regular(source.nodes(), s, rng)) {
      return metropolis(source.nodes(), *edges);
    }
  }
  STARLING_CHECK(false);  // a draw gets stuck in far less than half of all cases
  return {};
}

// Every node pushes to s others; who hears of c takes 1 / (c + 1) of each.
Step local_step(const Source& source, Node s, std::uint64_t t) {
  const Node n = source.nodes();
  Step step = Step::idle(n);
  step.entries.reserve(std::size_t{n} * s);
  std::vector<Node> heard(n);
  std::vector<Node> others(n);  // its first s places are drawn anew for each node
  std::iota(others.begin(), others.end(), Node{0});
  Rng rng = source.rng(t);
  for (Node sender = 0; sender < n; ++sender) {
    Node count = 0;
    for (Node place = 0; count < s; ++place) {
      std::swap(others[place], others[place + rng.below(n - place)]);
      if (others[place] == sender) continue;
      step.entries.push_back({others[place], sender, 0});
      ++heard[others[place]];
      ++count;
    }
  }
  for (MixingEntry& entry : step.entries) entry.weight = 1.0 / (1.0 + heard[entry.receiver]);
  for (Node i = 0; i < n; ++i) step.diagonal[i] = 1.0 / (1.0 + heard[i]);
  return step;
}

Step shift_step(const Source& source, double eta, std::uint64_t t) {
  const Node n = source.nodes();
  Rng rng = source.rng(t);
  const Shift shift{static_cast<Node>(1 + rng.below(n - 1)), eta * ((n - 1.0) / n)};
  return circulant(n, 1 - shift.weight, {&shift, 1});
}

// From a random node on, i and i + shift pair up where both are still free.
Step greedy_matching_step(const Source& source, double eta, std::uint64_t t) {
  const Node n = source.nodes();
  Rng rng = source.rng(t);
  const std::uint64_t shift = 1 + rng.below(n - 1);
  const std::uint64_t start = rng.below(n);
  Step step = Step::idle(n);
  std::vector<bool> taken(n);
  for (std::uint64_t k = 0; k < n; ++k) {
    const auto i = static_cast<Node>((start + k) % n);
    const auto j = static_cast<Node>((i + shift) % n);
    if (taken[i] || taken[j]) continue;
    taken[i] = taken[j] = true;
    step.exchange(i, j, eta * ((n - 1.0) / n));
  }
  return step;
}

}  // namespace

// With an odd number of nodes one of them sits out.
Result<Blueprint> random_matching(const Request& request) {
  STARLING_ASSIGN(std::string name, request.read({}));
  const Node n = request.nodes();
  if (n == 1) return Blueprint::fixed(std::move(name), Step::idle(1));
  return Blueprint{std::move(name), 0, false,
                   [source = Source(request)](std::uint64_t t) { return matching_step(source, t); },
                   // E[W] = E[W^T W]: a pair is matched with probability 1 / (n-1), or 1 / n.
                   n % 2 == 0 ? 0.5 * (1 - 1 / (n - 1.0)) : 0.5};
}

// De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma, "Epidemic Learning", NeurIPS 2023:
// EL-Oracle and EL-Local.
Result<Blueprint> epidemic(const Request& request) {
  Node s = 7;
  std::string kind(kEpidemicKinds[0]);
  FieldCollector visit("");
  visit("s", s, {.help = "messages that a node sends a step", .min = 1, .max = 1e6});
  visit("kind", kind,
        {.help = "a fresh regular graph, or pushes to random nodes", .choices = kEpidemicKinds});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const Node n = request.nodes();
  if (n == 1) return Blueprint::fixed(std::move(name), Step::idle(1));
  const Source source(request);
  if (kind == "oracle") {
    STARLING_TRY(check_regular(request, s, "s"));
    return Blueprint{std::move(name), 0, false,
                     [source, s](std::uint64_t t) { return oracle_step(source, s, t); },
                     (1 - s / (n - 1.0)) / (s + 1.0)};
  }
  if (s >= n) return request.impossible("s must be less than the number of nodes");
  STARLING_TRY(request.check_messages(static_cast<double>(n) * s));
  return Blueprint{std::move(name), 0, s + 1 < n,
                   [source, s](std::uint64_t t) { return local_step(source, s, t); },
                   (1 - std::pow(1 - s / (n - 1.0), n)) / s - 1 / (n - 1.0)};
}

// W = (1-eta) I + eta [(n-1)/n P_u + 1/n I] with one random shift u a step; undirected: a greedy
// matching at that distance (Song et al., NeurIPS 2022, OD- and OU-EquiDyn).
Result<Blueprint> equidyn(const Request& request) {
  double eta = 0.5;
  std::string kind(kKinds[0]);
  FieldCollector visit("");
  visit("eta", eta, {.help = "how much of a step is mixing", .min = 0.001, .max = 0.999});
  visit("kind", kind, {.help = "whether messages are answered", .choices = kKinds});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const Node n = request.nodes();
  if (n == 1) return Blueprint::fixed(std::move(name), Step::idle(1));
  const Source source(request);
  if (kind == "undirected") {
    return Blueprint{std::move(name), 0, false, [source, eta](std::uint64_t t) {
                       return greedy_matching_step(source, eta, t);
                     }};
  }
  return Blueprint{std::move(name), 0, n > 2,
                   [source, eta](std::uint64_t t) { return shift_step(source, eta, t); },
                   (1 - eta) * (1 - eta) + eta * eta * (1 - 2.0 / n)};
}

}  // namespace starling::topologies
