// SPDX-License-Identifier: Apache-2.0
// What a robust rule cannot promise on a topology: said, not refused, because rules help against
// many attacks where nothing is proven.
#pragma once

#include <string>
#include <vector>

#include "gossip/algorithms/robust_options.h"
#include "topologies/topology.h"

namespace starling::gossip {

// Sentences for the user; none where the rule is off or sure to hold.
std::vector<std::string> robust_warnings(const RobustOptions& robust,
                                         const topologies::Topology& topology);

}  // namespace starling::gossip
