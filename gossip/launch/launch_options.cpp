// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/launch_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/peer/network_run.h"

namespace starling::gossip {
namespace {

// Each node is a process.
constexpr Node kNodesMax = 1000;
constexpr std::string_view kNoLosses =
    "losses are of simulated messages, and a real connection sends again what is lost; say delays, "
    "stalls or resets in --events, or simulate it";

Error refuse(const std::string& what) { return wrong_setting("launch-options", what); }

// The algorithms and topologies of the program at work are not those of its peers.
Result<void> check_built_in(const NetOptions& options) {
  const AlgorithmCatalogue* const own = options.algorithm.own;
  if (own == nullptr) return {};
  const auto only_built_in = [](std::string_view what, std::string_view name) {
    return refuse(
        fmt::format("launch takes only built-in {}: its peers are starling-edge processes, which "
                    "do not have {}; simulate --real-protocol runs whole peers with it",
                    what, name));
  };
  const std::string_view algorithm = kind_of(options.algorithm);
  if (own->find(algorithm) != nullptr) return only_built_in("algorithms", algorithm);
  const std::string_view spec = options.topology.spec;
  const std::string_view topology = spec.substr(0, spec.find(':'));
  if (own->topologies().find(topology) != nullptr) return only_built_in("topologies", topology);
  return {};
}

FaultEvent partition_of(const sim::Network& network, const sim::Network::Split& split, Node nodes,
                        std::size_t number) {
  FaultEvent event{.name = fmt::format("network.splits {}", number + 1),
                   .kind = FaultKind::kPartition,
                   .at = from_seconds(split.from),
                   .lasts = from_seconds(split.to - split.from)};
  event.condition.held = true;
  for (Node a = 0; a < nodes; ++a) {
    if (network.separated_until(0, a, split.from)) event.nodes.push_back(a);
    for (Node b = 0; b < nodes; ++b) {
      if (a != b && network.separated_until(a, b, split.from)) event.links.emplace_back(a, b);
    }
  }
  return event;
}

}  // namespace

void LaunchConfig::bind(config::Binder& binder) {
  net.bind(binder);
  binder.bind("launch", launch);
  binder.bind("chaos", chaos);
}

Result<void> check_launchable(const config::Binder& binder, const NetOptions& options) {
  if (options.topology.nodes > kNodesMax) {
    return refuse(fmt::format("launch runs a process a node, at most {}; simulate takes {} nodes",
                              kNodesMax, options.topology.nodes));
  }
  if (const auto key = binder.first_said("nodes")) {
    return refuse(
        *key +
        " describes simulated devices; to slow, stop or kill real ones name them in --events");
  }
  STARLING_TRY(check_built_in(options));
  if (options.attack.kind != "none") {
    return refuse("attack.kind describes simulated nodes that lie; say it to simulate");
  }
  if (options.run.virtual_time > Duration::zero()) {
    return refuse("virtual-time means nothing for real processes; say steps");
  }
  if (options.network.loss > 0) {
    return refuse(fmt::format("network.loss: {}", kNoLosses));
  }
  const sim::NetworkOptions standard;
  if (options.network.jitter != standard.jitter) {
    return refuse("network.jitter is of simulated messages; say jitter with a delay in --events");
  }
  return {};
}

Settings roster_settings(const NetOptions& options, bool lossy) {
  const Settings defaults = NetOptions().settings();
  Settings told;
  for (const auto& setting : options.settings()) {
    if (std::ranges::find(defaults, setting) == defaults.end()) told.push_back(setting);
  }
  told.emplace_back(kLossyKey, lossy ? "true" : "false");
  return told;
}

Result<NetworkFaults> network_faults(const NetOptions& options) {
  const Node nodes = options.topology.nodes;
  STARLING_ASSIGN(const auto network, sim::Network::make(options.network, nodes, options.run.seed));
  if (network.links_change()) {
    return refuse(
        "network.links has a column time: links of real processes change by --events alone");
  }
  NetworkFaults faults;
  for (Node a = 0; a < nodes; ++a) {
    for (Node b = 0; b < nodes; ++b) {
      if (a == b) continue;
      if (network.loss(a, b) > 0) {
        return refuse(
            fmt::format("network.links has a loss from node {} to node {}: {}", a, b, kNoLosses));
      }
      const double access = std::min(network.bandwidth(a), network.bandwidth(b));
      faults.links[{a, b}] = {
          .delay = from_seconds(network.latency(a, b)),
          .bytes_per_second = std::min(access, network.link_bandwidth(a, b).value_or(access))};
    }
  }
  for (std::size_t i = 0; i < network.splits().size(); ++i) {
    faults.splits.push_back(partition_of(network, network.splits()[i], nodes, i));
  }
  return faults;
}

}  // namespace starling::gossip
