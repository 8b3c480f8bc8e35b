// SPDX-License-Identifier: Apache-2.0
// Adds topologies to starling-gossip: "chords", a ring with a chord from each node, always the
// same, and "shuffled-ring", a ring whose order is drawn again for every step. `topology` and
// all flags of `simulate` work with them: --sweep, --seeds, --mixing, --real-protocol, ...
#include <algorithm>
#include <numeric>
#include <vector>

#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/tool/run_commands.h"

using namespace starling;
using topologies::Blueprint;
using topologies::Edge;
using topologies::Node;
using topologies::Request;
using topologies::Step;

std::vector<Edge> ring_of(const std::vector<Node>& order) {
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Node a = order[i];
    const Node b = order[(i + 1) % order.size()];
    edges.push_back({std::min(a, b), std::max(a, b)});
  }
  return edges;
}

// "chords:reach=R": node i is joined to its two neighbours and to i + R.
Result<Blueprint> chords(const Request& request) {
  Node reach = 3;
  FieldCollector visit("");
  visit("reach", reach, {.help = "length of the chords", .min = 2, .max = 1e6});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  const Node n = request.nodes();
  if (n <= 2 * reach) return request.impossible("it takes more than twice as many as the reach");
  std::vector<Node> order(n);
  std::iota(order.begin(), order.end(), Node{0});
  std::vector<Edge> edges = ring_of(order);
  for (Node i = 0; i < n; ++i) {
    const Node other = (i + reach) % n;
    edges.push_back({std::min(i, other), std::max(i, other)});
  }
  return Blueprint::fixed(std::move(name), topologies::metropolis(n, edges));
}

// A period of 0: every step is drawn, from a stream that depends on the seed and the step.
Result<Blueprint> shuffled_ring(const Request& request) {
  STARLING_ASSIGN(std::string name, request.read({}));
  const Node n = request.nodes();
  if (n < 3) return request.impossible("it takes three at least");
  return Blueprint{std::move(name), 0, false, [n, draws = request.draws()](std::uint64_t step) {
                     std::vector<Node> order(n);
                     std::iota(order.begin(), order.end(), Node{0});
                     Rng rng = draws(step);
                     rng.shuffle(std::span(order));
                     return topologies::metropolis(n, ring_of(order));
                   }};
}

int main(int argc, char** argv) {
  gossip::AlgorithmCatalogue own;
  own.topologies().add("chords", chords);
  own.topologies().add("shuffled-ring", shuffled_ring);
  return gossip::run_commands(argc, argv, own);
}
