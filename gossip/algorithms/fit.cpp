// SPDX-License-Identifier: Apache-2.0
// Which algorithm may run on which topology and network: what the proofs need, checked before the
// first step, each with the remedy.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "gossip/algorithms/detag.h"
#include "gossip/algorithms/make_algorithm.h"
#include "topologies/spectral_report.h"

namespace starling::gossip {
namespace {

using topologies::MixingMatrix;
using topologies::Topology;

// What an algorithm asks of the matrices.
enum class Sums { kAny, kRows, kColumns, kDouble };
struct Needs {
  std::string_view name;
  Sums sums = Sums::kDouble;
  bool symmetric_static = false;
};
constexpr std::array<Needs, 12> kNeeds = {{
    {.name = "dpsgd"},
    {.name = "sgp", .sums = Sums::kColumns},
    {.name = "gradient-tracking"},
    {.name = "choco", .symmetric_static = true},
    {.name = "d2", .symmetric_static = true},
    {.name = "epidemic", .sums = Sums::kRows},
    {.name = "qg-dsgdm"},
    {.name = "relaysgd", .sums = Sums::kAny},
    {.name = "ad-psgd", .sums = Sums::kAny},
    {.name = "push-sum", .sums = Sums::kColumns},
    {.name = "diloco"},
    {.name = "detag", .symmetric_static = true},
}};

// So many steps stand for all of a topology that is drawn anew for every step; the union of so many
// at most must be connected.
constexpr std::uint64_t kDrawsChecked = 4;
constexpr std::uint64_t kDrawsMost = 64;

// An algorithm on a topology that was found unfit.
struct Case {
  const AlgorithmOptions& options;
  const Topology& topology;

  Error misfit(std::string_view why) const {
    return rejected("algorithm-topology",
                    fmt::format("{} cannot run on {}: {}", options.name, topology.name(), why));
  }
};

// A node that pushed all of its mass away could be left without any.
bool keeps_some(const MixingMatrix& matrix) {
  for (Node node = 0; node < matrix.nodes(); ++node) {
    if (!(matrix.self(node) > 0)) return false;
  }
  return true;
}

bool sums_hold(Sums sums, const MixingMatrix& matrix) {
  switch (sums) {
    case Sums::kAny:
      return true;
    case Sums::kRows:
      return matrix.row_stochastic();
    case Sums::kColumns:
      return matrix.column_stochastic() && keeps_some(matrix);
    case Sums::kDouble:
      return matrix.doubly_stochastic();
  }
  return false;
}

std::string_view broken_sums(Sums sums) {
  switch (sums) {
    case Sums::kRows:
      return "do not sum to 1 at every receiver, so it would not average; use mixing \"uniform\"";
    case Sums::kColumns:
      return "do not sum to 1 at every sender with a part for itself, so mass would not be kept; "
             "use mixing "
             "\"metropolis\" where edges go both ways, a directed topology with its own weights, "
             "or "
             "the algorithm epidemic";
    default:
      return "are not doubly stochastic, so the mean of the models would not be kept; use mixing "
             "\"metropolis\" where edges go both ways, and elsewhere the algorithm sgp (weights "
             "that sum to 1 at every sender) or epidemic (at every receiver)";
  }
}

Result<void> check_sums(const Case& c, Sums sums) {
  const std::uint64_t period = c.topology.period();
  const std::uint64_t steps = sums == Sums::kAny ? 0 : period == 0 ? kDrawsChecked : period;
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (!sums_hold(sums, *c.topology.at(step))) {
      return c.misfit(fmt::format("the weights of step {} {}", step, broken_sums(sums)));
    }
  }
  return {};
}

// The union of all steps, of a drawn topology of as many as it takes to connect it.
Result<graph::Graph> connected_union(const Case& c) {
  const bool drawn = c.topology.period() == 0;
  for (std::uint64_t steps = 1;; steps *= 2) {
    STARLING_ASSIGN(graph::Graph graph, topologies::union_graph(c.topology, steps));
    if (graph::is_connected(graph)) return graph;
    if (drawn && steps < kDrawsMost) continue;
    return c.misfit(
        "some nodes never reach some others, so the models could not agree; take more edges");
  }
}

Result<void> check_symmetric_static(const Case& c) {
  if (c.topology.time_varying()) {
    return c.misfit(
        "it needs the same matrix at every step; use a static topology, or the algorithm "
        "gradient-tracking");
  }
  if (!c.topology.at(0)->symmetric()) {
    return c.misfit(
        "it needs a symmetric matrix; use a topology whose edges go both ways, or the algorithm "
        "gradient-tracking");
  }
  return {};
}

Result<void> check_tree(const Case& c, const graph::Graph& graph) {
  if (!c.topology.time_varying() && graph::is_tree(graph)) return {};
  return c.misfit("relays need a tree that stays; use path, star, or file: with a tree's edges");
}

Result<void> check_bipartite(const Case& c, const graph::Graph& graph) {
  if (graph.directed()) {
    return c.misfit(
        "pairs average with each other, which needs edges that go both ways; use push-sum");
  }
  if (c.topology.period() != 0 && graph::is_bipartite(graph)) return {};
  return c.misfit(
      "some nodes that ask would have to ask each other, and wait for ever; use a bipartite "
      "topology (ring with an even number of nodes, torus with even sides, hypercube, star, path) "
      "or the algorithm push-sum");
}

// D^2's modes obey z^2 - 2 lambda z + lambda = 0: inside the unit circle only above -1/3.
Result<void> check_lambda_min(const Case& c) {
  if (c.topology.nodes() == 1) return {};
  STARLING_ASSIGN(const topologies::SpectralReport report, topologies::analyse(c.topology));
  constexpr double kLeast = -1.0 / 3 + 1e-6;
  if (report.lambda_min && report.lambda_min->value > kLeast) return {};
  return c.misfit(fmt::format(
      "the smallest eigenvalue is {}, and at or below -1/3 it diverges; use mixing \"lazy\"",
      report.lambda_min ? fmt::format("{:.6f}", report.lambda_min->value) : "not known"));
}

Result<void> check_outer(const AlgorithmOptions& options) {
  if (options.name != "diloco" || options.outer_rate <= 1 + options.outer_momentum) return {};
  return rejected(
      "algorithm-options",
      fmt::format("diloco with outer-rate {} and outer-momentum {} may blow up disagreement "
                  "instead of ending it; outer-rate must be at most 1 + outer-momentum = {}",
                  options.outer_rate, options.outer_momentum, 1 + options.outer_momentum));
}

Result<void> check_network(const AlgorithmOptions& options, const Setting& setting) {
  if (!setting.lossy) return {};
  if (!traits(options).loss_safe) {
    return rejected(
        "algorithm-network",
        fmt::format("{} does not survive a message that is lost or a node that is away: what "
                    "neighbours know of each other would disagree for ever; set network.retransmit "
                    "= true and let no node leave, or use the algorithm sgp or relaysgd",
                    options.name));
  }
  const bool ledger = options.name == "sgp" || options.name == "push-sum";
  if (ledger && setting.topology->period() == 0) {
    return rejected(
        "algorithm-network",
        fmt::format(
            "{} brings lost mass with the next message on the same edge, and on {} the same "
            "edge may never come again; use a static or periodic topology such as "
            "one-peer-exponential, network.retransmit = true, or the algorithm dpsgd",
            options.name, setting.topology->name()));
  }
  return {};
}

Result<void> check_topology(const Case& c) {
  const auto* needs = std::ranges::find(kNeeds, c.options.name, &Needs::name);
  STARLING_CHECK(needs != kNeeds.end());
  if (needs->symmetric_static) STARLING_TRY(check_symmetric_static(c));
  STARLING_TRY(check_sums(c, needs->sums));
  STARLING_ASSIGN(const graph::Graph graph, connected_union(c));
  if (c.options.name == "relaysgd") STARLING_TRY(check_tree(c, graph));
  if (c.options.name == "ad-psgd") STARLING_TRY(check_bipartite(c, graph));
  if (c.options.name == "d2") STARLING_TRY(check_lambda_min(c));
  return {};
}

}  // namespace

Result<void> check_fit(const AlgorithmOptions& options, const Setting& setting) {
  STARLING_TRY(check_outer(options));
  if (traits(options).pattern == Pattern::kMean) return {};
  STARLING_CHECK(setting.topology != nullptr);
  STARLING_TRY(check_network(options, setting));
  return check_topology({options, *setting.topology});
}

Result<Plan> plan_algorithm(const AlgorithmOptions& options, const Setting& setting, Node nodes,
                            std::uint64_t seed) {
  STARLING_TRY(check_fit(options, setting));
  Plan plan = {.options = options,
               .traits = traits(options),
               .nodes = nodes,
               .lossy = setting.lossy,
               .seed = seed};
  if (options.name == "sgp") plan.traits.per_receiver = setting.lossy;
  if (options.name == "detag") {
    STARLING_ASSIGN(const topologies::SpectralReport report,
                    topologies::analyse(*setting.topology));
    plan.slem = report.slem ? report.slem->value : 0;
    if (plan.options.gossip_rounds == 0) plan.options.gossip_rounds = accelerated_rounds(plan.slem);
  }
  if (options.name == "ad-psgd") {
    STARLING_ASSIGN(const graph::Graph graph, connected_union({options, *setting.topology}));
    plan.active = *graph::bipartition(graph);
  }
  return plan;
}

}  // namespace starling::gossip
