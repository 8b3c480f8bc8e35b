// SPDX-License-Identifier: Apache-2.0
// A family of topologies: what its spec means at a number of nodes. Inside the library only;
// topology.cpp has the table of all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/base/settings.h"
#include "topologies/step.h"
#include "topologies/topology.h"

namespace starling::topologies {

// What make() was asked for, the spec split into a family and its parameters.
struct Request {
  std::string_view family;
  std::string_view parameters;  // after the colon
  const TopologyOptions& options;

  Node nodes() const { return options.nodes; }
  // Of one step (0 for static topologies) and one attempt at a draw.
  Rng rng(std::uint64_t step = 0, std::uint32_t attempt = 0) const;
  std::string spec() const;

  // "the topology 'SPEC' WHY", as topology-spec or topology-impossible.
  Error wrong(const std::string& why) const;
  Error impossible(const std::string& why) const;
  // The name with every parameter. Fails with "topology-spec".
  [[nodiscard]] Result<std::string> read(const std::vector<Field>& fields) const;
  // Fails with "topology-impossible" where a step has more messages than memory should hold.
  [[nodiscard]] Result<void> check_messages(double messages) const;
};

struct Blueprint {
  std::string name;
  std::uint64_t period = 1;                 // as Topology::period
  bool directed = false;                    // only read where the topology varies in time
  std::function<Step(std::uint64_t)> step;  // any thread; requires step < period where there is one
  // As Topology::expected_squared_factor, with the weights of the definition.
  std::optional<double> expected_squared_factor = {};

  static Blueprint fixed(std::string name, Step step);
};

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
