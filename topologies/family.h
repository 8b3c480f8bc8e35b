// SPDX-License-Identifier: Apache-2.0
// The built-in families of topologies. Inside the library only; topology.cpp has the table of all.
#pragma once

#include <cstdint>
#include <string_view>

#include "topologies/blueprint.h"

namespace starling::topologies {

inline constexpr Node kNodesMax = 10'000'000;

using Build = Result<Blueprint> (*)(const Request&);

// The number of times that n > 1 can be divided by `base` before it is at most 1: ceil(log).
unsigned ceil_log(std::uint64_t n, std::uint64_t base);

// classic.cpp
Result<Blueprint> ring(const Request& request);
Result<Blueprint> directed_ring(const Request& request);
Result<Blueprint> path(const Request& request);
Result<Blueprint> star(const Request& request);
Result<Blueprint> complete(const Request& request);
Result<Blueprint> torus(const Request& request);
Result<Blueprint> hypercube(const Request& request);
Result<Blueprint> exponential(const Request& request);
// periodic.cpp
Result<Blueprint> one_peer_exponential(const Request& request);
Result<Blueprint> p_peer_exponential(const Request& request);
Result<Blueprint> one_peer_hypercube(const Request& request);
Result<Blueprint> hyper_hypercube(const Request& request);
Result<Blueprint> base_graph(const Request& request);
// random.cpp
Result<Blueprint> random_regular(const Request& request);
Result<Blueprint> erdos_renyi(const Request& request);
Result<Blueprint> watts_strogatz(const Request& request);
Result<Blueprint> barabasi_albert(const Request& request);
Result<Blueprint> equistatic(const Request& request);
// Whether a d-regular graph is possible; `key` names d in the sentence.
[[nodiscard]] Result<void> check_regular(const Request& request, Node d, std::string_view key);
// drawn.cpp
Result<Blueprint> random_matching(const Request& request);
Result<Blueprint> epidemic(const Request& request);
Result<Blueprint> equidyn(const Request& request);
// d_cliques.cpp
Result<Blueprint> d_cliques(const Request& request);
// edge_list.cpp
Result<Blueprint> file_graph(const Request& request);  // also for 0 nodes: as many as it names

}  // namespace starling::topologies
