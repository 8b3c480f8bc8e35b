// SPDX-License-Identifier: Apache-2.0
// Algorithms and topologies of one's own beside the built-in ones, by name. A program adds them and
// hands the catalogue to what runs a network (gossip/tool/run_commands.h, AlgorithmOptions::own);
// what is built in does not change.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gossip/algorithms/make_algorithm.h"
#include "topologies/topology_catalogue.h"

namespace starling::gossip {

struct OwnAlgorithm {
  // One object a node. `model`: [d], the node's initial parameters, to be copied.
  using Make = std::function<std::unique_ptr<Algorithm<float>>(const Plan& plan, Node node,
                                                               std::span<const float> model)>;
  using MakeAsync = std::function<std::unique_ptr<AsyncAlgorithm<float>>(
      const Plan& plan, Node node, std::span<const float> model)>;

  AlgorithmTraits traits = {};     // its name is that of the catalogue
  Sums sums = Sums::kDouble;       // of the mixing matrices
  bool symmetric_static = false;   // of the topology
  Make make = nullptr;             // patterns kNeighbours and kMean
  MakeAsync make_async = nullptr;  // pattern kPairs
};

class AlgorithmCatalogue {
 public:
  AlgorithmCatalogue();
  // Names are borrowed from it.
  AlgorithmCatalogue(const AlgorithmCatalogue&) = delete;
  AlgorithmCatalogue& operator=(const AlgorithmCatalogue&) = delete;

  // Requires: a name that no algorithm has, and the function that its pattern needs.
  void add(std::string name, OwnAlgorithm algorithm);

  const OwnAlgorithm* find(std::string_view name) const;              // null: none of these
  std::span<const std::string_view> names() const { return names_; }  // built in ones first

  // Those of the same program.
  topologies::TopologyCatalogue& topologies() { return topologies_; }
  const topologies::TopologyCatalogue& topologies() const { return topologies_; }

 private:
  std::map<std::string, OwnAlgorithm, std::less<>> algorithms_;
  std::vector<std::string_view> names_;
  topologies::TopologyCatalogue topologies_;
};

}  // namespace starling::gossip
