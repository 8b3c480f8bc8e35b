// SPDX-License-Identifier: Apache-2.0
// What a simulation drew for its links and nodes, as files that network.links, nodes.speeds and
// nodes.presence take back: with them the same settings give the same run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/sim/network.h"
#include "core/sim/population.h"

namespace starling::sim {

// The access links where their bandwidths differ, and the links of `pairs`, each once in either
// direction. Empty where all links are alike.
std::string links_to_csv(const Network& network, std::uint32_t nodes,
                         const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs);

// Empty where all nodes are equally fast.
std::string speeds_to_csv(const Population& population, std::uint32_t nodes);

// When each node was there until this time, seconds, and when it is next; each has a row at
// least. Empty where all always are.
std::string presence_to_csv(const Population& population, std::uint32_t nodes, double until);

}  // namespace starling::sim
