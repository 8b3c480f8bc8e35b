// SPDX-License-Identifier: Apache-2.0
// Which algorithm may run on which topology and network: what the proofs need, checked before the
// first step, each with the remedy.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "core/base/parameter_list.h"
#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/algorithms/detag.h"
#include "gossip/algorithms/disagreement.h"
#include "gossip/algorithms/make_algorithm.h"
#include "topologies/spectral_report.h"

namespace starling::gossip {
namespace {

using topologies::MixingMatrix;
using topologies::Topology;

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
    {.name = "epidemic", .sums = Sums::kAlike},
    {.name = "qg-dsgdm"},
    {.name = "relaysgd", .sums = Sums::kAny},
    {.name = "ad-psgd", .sums = Sums::kAny},
    {.name = "push-sum", .sums = Sums::kColumns},
    {.name = "diloco"},
    {.name = "detag", .symmetric_static = true},
}};

// So many steps stand for all of a topology that is drawn again for every step; the union of so
// many at most must be connected.
constexpr std::uint64_t kDrawsChecked = 4;
constexpr std::uint64_t kDrawsMost = 64;

// An algorithm on a topology that was found unfit.
struct Case {
  const AlgorithmOptions& options;
  const Topology& topology;

  Error misfit(std::string_view why) const {
    return wrong_setting("algorithm-topology", fmt::format("{} cannot run on {}: {}", options.name,
                                                           topology.name(), why));
  }
};

// A node that pushed all of its mass away could be left without any.
bool keeps_some(const MixingMatrix& matrix) {
  for (Node node = 0; node < matrix.nodes(); ++node) {
    if (!(matrix.self(node) > 0)) return false;
  }
  return true;
}

// Whether plain means of what comes keep the mean of all: every node's shares in them sum to 1.
bool plain_means_keep_mean(const MixingMatrix& matrix) {
  constexpr double kRounding = 1e-9;
  std::vector<double> shares(matrix.nodes());
  for (Node node = 0; node < matrix.nodes(); ++node) {
    const double share = 1 / (1 + static_cast<double>(matrix.senders(node).size()));
    shares[node] += share;
    for (const topologies::Weight& sender : matrix.senders(node)) shares[sender.node] += share;
  }
  return std::ranges::all_of(shares, [](double share) { return std::abs(share - 1) <= kRounding; });
}

bool sums_hold(Sums sums, const MixingMatrix& matrix) {
  switch (sums) {
    case Sums::kAny:
      return true;
    case Sums::kAlike:
      return plain_means_keep_mean(matrix);
    case Sums::kColumns:
      return matrix.column_stochastic() && keeps_some(matrix);
    case Sums::kDouble:
      return matrix.doubly_stochastic();
  }
  return false;
}

std::string broken_sums(Sums sums, bool drawn) {
  switch (sums) {
    case Sums::kAlike:
      return "has nodes whose messages count for more than others' in plain means, and their data "
             "would count for more; use the algorithm dpsgd with mixing \"metropolis\" where edges "
             "go both ways, sgp with mixing \"push\" elsewhere, or a topology drawn again for "
             "every "
             "step as epidemic";
    case Sums::kColumns:
      return "has weights that do not sum to 1 at every sender with a part for itself, so mass "
             "would not be kept; use mixing \"push\"";
    default:
      return fmt::format(
          "has weights that are not doubly stochastic, so the mean of the models would not be "
          "kept; use mixing \"metropolis\" where edges go both ways, and elsewhere the algorithm "
          "sgp with mixing \"push\"{}",
          drawn ? ", or the algorithm epidemic" : "");
  }
}

// Whether the first steps, or all of a period, have these sums; else the first that has not.
std::optional<std::uint64_t> first_without(const Topology& topology, Sums sums) {
  const std::uint64_t period = topology.period();
  const std::uint64_t steps = sums == Sums::kAny ? 0 : period == 0 ? kDrawsChecked : period;
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (!sums_hold(sums, *topology.at(step))) return step;
  }
  return std::nullopt;
}

Result<void> check_sums(const Case& c, Sums sums) {
  const bool drawn = c.topology.period() == 0;
  // Drawn steps favour nobody in the long run.
  if (drawn && sums == Sums::kAlike) return {};
  if (const auto step = first_without(c.topology, sums)) {
    return c.misfit(fmt::format("step {} {}", *step, broken_sums(sums, drawn)));
  }
  return {};
}

// A node's steps move it by w_i u_i: of as much weight in all where rows sum to 1 too, or on
// average over drawn steps.
Result<void> check_push_sum(const Case& c) {
  if (c.topology.period() == 0 || !first_without(c.topology, Sums::kDouble)) return {};
  return c.misfit(
      "its weights are not doubly stochastic, so some nodes would hold more mass and their data "
      "count for more; use mixing \"metropolis\" where edges go both ways, and elsewhere the "
      "algorithm sgp with mixing \"push\"");
}

// What the graph of a file most likely lacks: its nodes end where its edges do.
std::string nodes_of_file(const Case& c, const graph::Graph& graph) {
  graph::Node end = graph.nodes();
  while (end > 0 && graph.successors(end - 1).empty() && graph.predecessors(end - 1).empty()) --end;
  if (!c.topology.name().starts_with("file:") || end == graph.nodes()) return "take more edges";
  return fmt::format("the file has edges of {} nodes, and the network {} nodes; set --nodes {}",
                     end, graph.nodes(), end);
}

// The union of all steps, of a drawn topology of as many as it takes to connect it.
Result<graph::Graph> connected_union(const Case& c) {
  const bool drawn = c.topology.period() == 0;
  for (std::uint64_t steps = 1;; steps *= 2) {
    STARLING_ASSIGN(graph::Graph graph, topologies::union_graph(c.topology, steps));
    if (graph::is_connected(graph)) return graph;
    if (drawn && steps < kDrawsMost) continue;
    return c.misfit("some nodes never reach some others, so the models could not agree; " +
                    nodes_of_file(c, graph));
  }
}

Result<void> check_symmetric_static(const Case& c) {
  if (!c.topology.time_varying() && c.topology.at(0)->symmetric()) return {};
  const std::string_view or_tracking =
      first_without(c.topology, Sums::kDouble) ? "" : ", or the algorithm gradient-tracking";
  if (c.topology.time_varying()) {
    return c.misfit(
        fmt::format("it needs the same matrix at every step; use a static topology whose edges go "
                    "both ways{}",
                    or_tracking));
  }
  if (!c.topology.directed()) {
    return c.misfit("it needs a symmetric matrix; use mixing \"metropolis\"");
  }
  return c.misfit(fmt::format(
      "it needs a symmetric matrix; use a topology whose edges go both ways{}", or_tracking));
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
      "some nodes that ask would have to ask each other, and wait without end; use a bipartite "
      "topology (ring with an even number of nodes, torus with even sides, hypercube, star, path) "
      "or the algorithm push-sum");
}

// No eigenvalue is smaller (Gershgorin).
double lambda_min_at_least(const MixingMatrix& matrix) {
  double least = 1;
  for (Node node = 0; node < matrix.nodes(); ++node) least = std::min(least, matrix.self(node));
  return 2 * least - 1;
}

// D^2's modes obey z^2 - 2 lambda z + lambda = 0: inside the unit circle only above -1/3.
Result<void> check_lambda_min(const Case& c) {
  constexpr double kLeast = -1.0 / 3 + 1e-6;
  if (c.topology.nodes() == 1 || lambda_min_at_least(*c.topology.at(0)) > kLeast) return {};
  STARLING_ASSIGN(const topologies::SpectralReport report, topologies::analyse(c.topology));
  const auto& found = report.lambda_min;
  // A bound lies above it.
  const bool known = found && found->certainty != topologies::Certainty::kBound;
  if (known && found->value > kLeast) return {};
  return c.misfit(fmt::format(
      "the smallest eigenvalue is {}, and at or below -1/3 it diverges; use mixing \"lazy\"",
      known ? fmt::format("{:.6f}", found->value) : "not known"));
}

Result<void> check_outer(const AlgorithmOptions& options) {
  const double momentum = outer_momentum(options);
  if (options.name != "diloco" || options.outer_rate <= 1 + momentum) return {};
  return wrong_setting(
      "algorithm-options",
      fmt::format("diloco with outer-rate {} and outer-momentum {} may blow up disagreement "
                  "instead of ending it; outer-rate must be at most 1 + outer-momentum = {}",
                  options.outer_rate, momentum, 1 + momentum));
}

// Proven for symmetric static matrices, of qg-dsgdm for eigenvalues above -(1 + mu) / (1 + 3 mu -
// 2 mu^2): det and trace of its mode, 1 + trace + det > 0.
bool proven(const Topology& topology, const MomentumMixing& mixing) {
  const double mu = mixing.momentum;
  if (mu == 0 && mixing.rate <= 1) return true;
  if (topology.time_varying() || !topology.at(0)->symmetric()) return false;
  if (mixing.kind == MomentumKind::kOuter) return mixing.rate <= 1 + mu;
  return lambda_min_at_least(*topology.at(0)) > -(1 + mu) / (1 + 3 * mu - 2 * mu * mu);
}

Result<void> check_momentum(const Case& c) {
  const bool outer = c.options.name == "diloco";
  MomentumMixing mixing = {.kind = outer ? MomentumKind::kOuter : MomentumKind::kQuasiGlobal,
                           .momentum = outer ? outer_momentum(c.options) : c.options.momentum,
                           .rate = outer ? c.options.outer_rate : 1};
  const auto ends = [&] {
    return proven(c.topology, mixing) || ends_disagreement(c.topology, mixing);
  };
  if (ends()) return {};
  const double given = mixing.momentum;
  for (const double less : {0.5, 0.3, 0.1, 0.0}) {
    mixing.momentum = less;
    if (less >= given || mixing.rate > 1 + less || !ends()) continue;
    return c.misfit(fmt::format(
        "with momentum {} its nodes drift apart, because mixing here turns or changes from step "
        "to step; set algorithm.{} = {}, or use a static topology whose edges go both ways",
        given, outer ? "outer-momentum" : "momentum", less));
  }
  return c.misfit(
      fmt::format("with outer-rate {} and outer-momentum {} its nodes drift apart; set "
                  "algorithm.outer-rate = 1 "
                  "and algorithm.outer-momentum = 0",
                  mixing.rate, given));
}

Result<void> check_network(const AlgorithmOptions& options, const Setting& setting) {
  if (!setting.lossy) return {};
  if (!traits(options).loss_safe && !setting.by_peers) {
    return wrong_setting(
        "algorithm-network",
        fmt::format("{} does not survive a message that is lost or a node that is away: what "
                    "neighbours know of each other would differ from then on; use --real-protocol, "
                    "whose peers send again what is lost and begin that state again where a node "
                    "was away, or the algorithm sgp, or relaysgd on a tree, or set "
                    "network.retransmit = true, with no split and no node that leaves",
                    options.name));
  }
  const bool ledger = options.name == "sgp" || options.name == "push-sum";
  if (ledger && setting.topology->period() == 0) {
    return wrong_setting(
        "algorithm-network",
        fmt::format(
            "{} brings lost mass with the next message on the same edge, and on {} the same "
            "edge may never come again; use a static or periodic topology such as "
            "one-peer-exponential, network.retransmit = true, or the algorithm dpsgd",
            options.name, setting.topology->name()));
  }
  return {};
}

Needs needs_of(const AlgorithmOptions& options) {
  if (const auto* own = options.own == nullptr ? nullptr : options.own->find(kind_of(options))) {
    return {own->traits.name, own->sums, own->symmetric_static};
  }
  const auto* needs = std::ranges::find(kNeeds, options.name, &Needs::name);
  STARLING_CHECK(needs != kNeeds.end());
  return *needs;
}

Result<void> check_topology(const Case& c) {
  const Needs needs = needs_of(c.options);
  if (needs.symmetric_static) STARLING_TRY(check_symmetric_static(c));
  STARLING_TRY(check_sums(c, needs.sums));
  STARLING_ASSIGN(const graph::Graph graph, connected_union(c));
  if (c.options.name == "relaysgd") STARLING_TRY(check_tree(c, graph));
  if (c.options.name == "ad-psgd") STARLING_TRY(check_bipartite(c, graph));
  if (c.options.name == "d2") STARLING_TRY(check_lambda_min(c));
  if (c.options.name == "push-sum") STARLING_TRY(check_push_sum(c));
  if (c.options.name == "diloco" || c.options.name == "qg-dsgdm") STARLING_TRY(check_momentum(c));
  return {};
}

Result<void> check_robust(const AlgorithmOptions& options, const RobustOptions& robust) {
  if (!robust.is_on() || traits(options).mixes_models) return {};
  return wrong_setting(
      "algorithm-robust",
      fmt::format("robust.rule = {} cannot bound what {} exchanges, which is not models mixed by "
                  "their weights; use one of the algorithms {}, or set robust.rule = off",
                  robust.rule, options.name, names_that_mix_models()));
}

}  // namespace

Result<std::uint32_t> group_size(const AlgorithmOptions& options) {
  const std::string_view kind = kind_of(options);
  if (kind.size() == options.name.size()) return 0;
  if (kind == "diloco-all") {
    return wrong_setting("algorithm-options",
                         "diloco-all does not average in groups: its outer step and its momentum "
                         "are of a model that all nodes share; use all-reduce:group=8, or the "
                         "algorithm diloco");
  }
  if (kind != "all-reduce") {
    return wrong_setting(
        "algorithm-options",
        fmt::format("the algorithm {} takes no parameters after its name; its options are keys "
                    "such as algorithm.momentum",
                    kind));
  }
  std::uint32_t size = 0;
  FieldCollector visit("");
  visit("group", size, {.help = "nodes that average together", .min = 2, .max = 1e7});
  const auto read = read_parameters(std::string_view(options.name).substr(kind.size() + 1),
                                    std::move(visit).take());
  if (read && size != 0) return size;
  return wrong_setting(
      "algorithm-options",
      fmt::format("the algorithm '{}' {}", printable(options.name),
                  read ? "gives no group; write all-reduce:group=8" : read.error().message()));
}

Result<void> check_fit(const AlgorithmOptions& options, const Setting& setting) {
  STARLING_TRY(group_size(options));
  STARLING_TRY(check_outer(options));
  STARLING_TRY(check_robust(options, setting.robust));
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
               .seed = seed,
               .robust = setting.robust};
  STARLING_ASSIGN(plan.group, group_size(options));
  if (setting.robust.is_on()) plan.traits.whole_columns = true;
  if (options.name == "sgp") {
    plan.traits.per_receiver = setting.lossy;
    plan.balanced = setting.lossy && !first_without(*setting.topology, Sums::kDouble);
  }
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
