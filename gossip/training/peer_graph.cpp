// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/peer_graph.h"

#include "gossip/algorithms/make_algorithm.h"

namespace starling::gossip {

Result<std::unique_ptr<const topologies::Topology>> make_peer_graph(const NetOptions& options,
                                                                    topologies::Node nodes) {
  if (traits(options.algorithm).pattern == Pattern::kMean) {
    return std::unique_ptr<const topologies::Topology>();
  }
  if (options.topology.spec.starts_with("d-cliques")) {
    return wrong_setting("algorithm-topology",
                         "d-cliques needs to know every node's labels, which real peers keep to "
                         "themselves; name another topology");
  }
  return topologies::Topology::make({.spec = options.topology.spec,
                                     .nodes = nodes,
                                     .seed = options.topology_seed(),
                                     .mixing = options.topology.mixing,
                                     .own = own_topologies(options.algorithm.own)});
}

}  // namespace starling::gossip
