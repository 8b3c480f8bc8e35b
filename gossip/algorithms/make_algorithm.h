// SPDX-License-Identifier: Apache-2.0
// The algorithms by name: what each needs of a topology and a network, and one object a node.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gossip/algorithms/algorithm.h"
#include "gossip/algorithms/algorithm_options.h"
#include "gossip/algorithms/async_algorithm.h"
#include "gossip/algorithms/robust_options.h"
#include "topologies/topology.h"

namespace starling::gossip {

// How its messages reach the others, and so what drives it.
enum class Pattern {
  kNeighbours,  // Algorithm, synchronous, messages along the topology's edges
  kMean,        // Algorithm, synchronous, each node gets the mean of all, or of its group
  kPairs,       // AsyncAlgorithm
};

// What an algorithm asks of the mixing matrices.
enum class Sums {
  kAny,
  kAlike,    // plain means keep the mean of all: regular graphs, or drawn again for every step
  kColumns,  // the weights of a sender sum to 1, and it keeps some
  kDouble,   // doubly stochastic
};

struct AlgorithmTraits {
  std::string_view name;
  Pattern pattern = Pattern::kNeighbours;
  bool loss_safe = true;  // a message that does not come costs accuracy, not convergence
  // What neighbours share only corrects the local steps: restart() before each of them is dpsgd.
  bool corrects_steps = false;
  bool per_receiver = false;   // message(k) depends on k (sgp: only where messages are lost)
  bool whole_columns = false;  // absorb() wants all columns at once
  bool sends_before_training = false;  // messages are ready before the local steps begin
  // It does something between two steps, or steps itself: takes steps one by one, or gradients.
  bool steps_itself = false;
  // Models change by training and by convex means of models alone: what is no parameter, such as a
  // running variance, stays what it is.
  bool plain_means = false;
  // Its messages are models, mixed by their weights: a robust rule can bound what each one does.
  bool mixes_models = false;
  bool weighs = false;    // its state holds a share of a weight that all nodes hold together
  int state_vectors = 1;  // [d]-vectors of float that a node holds (without per-edge state)
};

// kind_of(options) is one of algorithm_names(options.own).
AlgorithmTraits traits(const AlgorithmOptions& options);
// "dpsgd, epidemic, ...": whose traits say mixes_models.
std::string names_that_mix_models();

// What is known of the world before the first step.
struct Setting {
  const topologies::Topology* topology = nullptr;  // null where the pattern is kMean
  bool lossy = false;                              // messages may be lost, nodes may be away
  RobustOptions robust = {};
  // Whole peers run it. They send again what is lost, and begin the state that neighbours share
  // again where a node was away: so algorithms that are not loss-safe are possible too.
  bool by_peers = false;
};

// Refuses what cannot converge or cannot be: "algorithm-topology", "algorithm-network" or
// "algorithm-robust", with the reason and the remedy.
[[nodiscard]] Result<void> check_fit(const AlgorithmOptions& options, const Setting& setting);

// What check_fit had to compute once for all nodes, so that each need not.
struct Plan {
  AlgorithmOptions options;  // detag: gossip_rounds is chosen
  // For this network: sgp's messages depend on the receiver where lossy, and a robust rule compares
  // whole models.
  AlgorithmTraits traits;
  Node nodes = 0;
  bool lossy = false;
  bool balanced = false;  // sgp, lossy: all matrices are doubly stochastic
  double slem = 0;        // of the topology, where the algorithm wants it (detag), else 0
  std::uint64_t seed = 1;
  std::vector<std::uint8_t> active = {};  // ad-psgd: which side of the bipartition asks
  Node group = 0;                         // all-reduce: group_size()
  RobustOptions robust = {};
};
// check_fit, and the constants that follow from the topology.
[[nodiscard]] Result<Plan> plan_algorithm(const AlgorithmOptions& options, const Setting& setting,
                                          Node nodes, std::uint64_t seed);

// Requires: pattern kNeighbours or kMean. `model`: [d], the node's initial parameters, copied.
template <class T>
std::unique_ptr<Algorithm<T>> make_algorithm(const Plan& plan, Node node, std::span<const T> model);
// Requires: pattern kPairs.
template <class T>
std::unique_ptr<AsyncAlgorithm<T>> make_async_algorithm(const Plan& plan, Node node,
                                                        std::span<const T> model);

}  // namespace starling::gossip
