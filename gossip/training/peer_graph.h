// SPDX-License-Identifier: Apache-2.0
// The graph of real peers: what each member of a roster makes of its settings, and what whoever
// signs one must judge alike.
#pragma once

#include <memory>

#include "gossip/training/options.h"
#include "topologies/topology.h"

namespace starling::gossip {

// Null where everybody hears everybody (Pattern::kMean). Fails with "algorithm-topology" where the
// graph depends on what peers keep to themselves, and as Topology::make.
[[nodiscard]] Result<std::unique_ptr<const topologies::Topology>> make_peer_graph(
    const NetOptions& options, topologies::Node nodes);

}  // namespace starling::gossip
