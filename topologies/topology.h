// SPDX-License-Identifier: Apache-2.0
// A named topology of n nodes: the mixing matrix of every step, 0, 1, 2, ... The same (spec, nodes,
// seed, mixing) gives the same matrices on every machine, so peers agree on them without talking.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "topologies/mixing_matrix.h"

namespace starling::topologies {

// How weights are laid on a graph. `own`: those of the topology's definition (Metropolis-Hastings
// where it has none). d is a node's degree without itself:
//   metropolis  W_ij = 1 / (1 + max(d_i, d_j))            rows and columns sum to 1
//   uniform     W_ij = 1 / (1 + d_i) (in-degree)          rows sum to 1
//   push        W_ij = 1 / (1 + d_j) (out-degree)         columns sum to 1, as push-sum wants
//   max-degree  W_ij = 1 / (1 + max over nodes of d)      symmetric where all is answered
//   lazy        (I + own) / 2: every eigenvalue at or above 0
inline constexpr std::array<std::string_view, 6> kMixingRules = {"own",  "metropolis", "uniform",
                                                                 "push", "max-degree", "lazy"};

class TopologyCatalogue;  // topology_catalogue.h

struct TopologyOptions {
  std::string spec = "ring";  // "NAME[:KEY=VALUE,...]", see topologies/README.md
  Node nodes = 0;             // 0: as many as a file names
  std::uint64_t seed = 1;
  std::string mixing = "own";
  // For data-aware topologies (d-cliques): [nodes][classes], rows of each class on each node.
  std::vector<std::vector<std::uint32_t>> label_counts = {};
  // The program's own, beside the built-in ones; must outlive make().
  const TopologyCatalogue* own = nullptr;
};

// Their names.
std::vector<std::string_view> built_in_topologies();

class Topology {
 public:
  virtual ~Topology() = default;
  // Fails with "topology-spec" (a name or parameter that is wrong, naming the known or nearest
  // ones), "topology-impossible" (not at this number of nodes, with those that are possible),
  // "topology-own" (topology_catalogue.h) or "not-stochastic".
  [[nodiscard]] static Result<std::unique_ptr<const Topology>> make(const TopologyOptions& options);

  // The spec with every parameter.
  virtual const std::string& name() const = 0;
  virtual Node nodes() const = 0;
  virtual bool directed() const = 0;  // some matrix is not symmetric in its pattern
  // 1: static; p: at(t) == at(t + p); 0: drawn again for every step.
  virtual std::uint64_t period() const = 0;
  bool time_varying() const { return period() != 1; }
  // The matrix of a step; shared where the topology repeats. Any thread. A drawn one costs
  // O(edges).
  virtual std::shared_ptr<const MixingMatrix> at(std::uint64_t step) const = 0;
  // Of one drawn anew: the expected ||W x||^2 / ||x||^2 for x of mean 0, where a closed form is
  // known. Where W is not doubly stochastic the mean moves; that counts as distance.
  virtual std::optional<double> expected_squared_factor() const { return std::nullopt; }
};

// Every edge of the steps [0, period); of a topology drawn anew, of its first `steps` steps.
[[nodiscard]] Result<graph::Graph> union_graph(const Topology& topology, std::uint64_t steps = 1);

}  // namespace starling::topologies
