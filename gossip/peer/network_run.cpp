// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/network_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/counted.h"
#include "core/graph/traversal.h"
#include "core/protocol/peer_messages.h"
#include "gossip/fallback/fallback_terms.h"
#include "gossip/training/network_trainers.h"
#include "gossip/training/peer_graph.h"

namespace starling::gossip {
namespace {

struct Said {
  NetOptions options;  // for as many nodes as there are members
  bool lossy = true;
};

Result<Said> read_settings(const identity::Roster& roster,
                           const AlgorithmCatalogue* own = nullptr) {
  Said said;
  said.options.algorithm.own = own;
  Settings keys;
  for (const auto& [key, value] : roster.settings) {
    if (is_fallback({{key, value}}) || key == identity::kRunIdKey) continue;
    if (key != kLossyKey) {
      keys.emplace_back(key, value);
    } else if (value == "true" || value == "false") {
      said.lossy = value == "true";
    } else {
      return wrong_setting("setting-invalid",
                           fmt::format("{} = '{}' is neither true nor false", kLossyKey, value));
    }
  }
  config::Binder binder;
  said.options.bind(binder);
  STARLING_TRY(binder.set(keys));
  said.options.topology.nodes = static_cast<Node>(roster.members.size());
  STARLING_TRY(said.options.validate());
  return said;
}

// A word passes every edge once an exchange. Where edges change, each period may carry it one step
// only; where they are drawn anew, rumours take a few times log2(n).
std::uint64_t spread_of(const topologies::Topology& topology) {
  const std::uint64_t nodes = topology.nodes();
  if (topology.period() == 0) {
    std::uint64_t doublings = 1;
    while ((std::uint64_t{1} << doublings) < nodes) ++doublings;
    return 4 * doublings;
  }
  const auto edges = topologies::union_graph(topology);
  if (!edges) return topology.period() * nodes;
  // The way there and back through node 0 is at most twice the diameter, and found in no time.
  const Node there = std::ranges::max(graph::distances(*edges, 0));
  const Node back = std::ranges::max(graph::distances_to(*edges, 0));
  if (there == graph::kUnreachable || back == graph::kUnreachable) return topology.period() * nodes;
  return topology.period() * (there + std::uint64_t{back});
}

// Whether the graph, and a cycle through all nodes, have fewer than half of all pairs. One that is
// drawn again for every step leads to everybody in time.
bool is_sparse(const topologies::Topology& topology) {
  if (topology.period() == 0 || topology.nodes() > protocol::kBeatsMax) return false;
  const auto graph = topologies::union_graph(topology);
  const std::uint64_t nodes = topology.nodes();
  return graph && 4 * (graph->edges() + nodes) < nodes * (nodes - 1);
}

Result<NetworkRun> make_run(Said said, std::shared_ptr<const model::Model> model,
                            model::Parameters initial) {
  const NetOptions& options = said.options;
  const Node nodes = options.topology.nodes;
  STARLING_ASSIGN(auto topology, make_peer_graph(options, nodes));
  const Setting setting{
      .topology = topology.get(), .lossy = said.lossy, .robust = options.robust, .by_peers = true};
  STARLING_ASSIGN(Plan plan, plan_algorithm(options.algorithm, setting, nodes, options.run.seed));
  const std::uint64_t spread = topology ? spread_of(*topology) : 1;
  const bool sparse = topology && is_sparse(*topology);
  return NetworkRun{.options = std::move(said.options),
                    .model = std::move(model),
                    .topology = std::move(topology),
                    .plan = std::move(plan),
                    .initial = std::move(initial),
                    .lossy = said.lossy,
                    .spread = spread,
                    .sparse = sparse};
}

}  // namespace

// Static graphs: one matrix says it all. Others: everybody that some step names.
std::vector<Node> neighbours_of(const topologies::Topology& topology, Node self,
                                std::uint64_t step) {
  std::vector<Node> nodes;
  const std::uint64_t steps =
      std::min<std::uint64_t>(std::max<std::uint64_t>(topology.period(), 1), topology.nodes());
  const std::uint64_t from = topology.period() == 0 ? step : 0;
  for (std::uint64_t at = from; at < from + steps; ++at) {
    const auto matrix = topology.at(at);
    for (const auto& weight : matrix->senders(self)) nodes.push_back(weight.node);
    for (const auto& weight : matrix->receivers(self)) nodes.push_back(weight.node);
  }
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

Settings run_settings(const NetOptions& options, bool lossy) {
  Settings settings = options.settings();
  settings.emplace_back(kLossyKey, lossy ? "true" : "false");
  return settings;
}

Result<NetworkRun> derive_run(const identity::Roster& roster, const data::Shape& shape, int classes,
                              const AlgorithmCatalogue* own) {
  STARLING_ASSIGN(Said said, read_settings(roster, own));
  STARLING_ASSIGN(const auto fallback, read_fallback(roster.settings));
  if (fallback) classes = fallback->classes;
  STARLING_ASSIGN(auto model, model::make_model(said.options.model, shape, classes));
  model::Parameters initial = model::initial_parameters(*model, said.options.run.seed);
  return make_run(std::move(said), std::move(model), std::move(initial));
}

Result<NetworkRun> derive_run(const identity::Roster& roster, const MemberTrainer& trainer,
                              const std::atomic<bool>& stop) {
  STARLING_ASSIGN(Said said, read_settings(roster));
  STARLING_ASSIGN(const auto description,
                  trainer.host.describe(said.options.trainer.object(), stop));
  STARLING_TRY(check_trainer(said.options, description));
  if (trainer.held > 0) {
    if (trainer.held != description.layout->size()) {
      return unsupported("tensors-differ",
                         fmt::format("the model of this run has {}, and {} has {} now",
                                     counted(trainer.held, "value"), description.name,
                                     counted(description.layout->size(), "value")));
    }
    return make_run(std::move(said), {}, model::Parameters(description.layout));
  }
  STARLING_ASSIGN(auto initial, initial_model(said.options, trainer.member, trainer.host, stop));
  return make_run(std::move(said), {}, std::move(initial));
}

Result<bool> is_external(const identity::Roster& roster, const AlgorithmCatalogue* own) {
  STARLING_ASSIGN(const Said said, read_settings(roster, own));
  return said.options.model.is_external();
}

}  // namespace starling::gossip
