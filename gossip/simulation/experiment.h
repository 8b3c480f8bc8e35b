// SPDX-License-Identifier: Apache-2.0
// Everything a simulation needs before its first step, checked: data, model, topology, algorithm,
// network and nodes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/data/dataset.h"
#include "core/model/model.h"
#include "core/sim/network.h"
#include "core/sim/population.h"
#include "gossip/algorithms/make_algorithm.h"
#include "gossip/simulation/options.h"
#include "topologies/topology.h"

namespace starling::gossip {

struct Experiment {
  NetOptions options;
  std::shared_ptr<const model::Model> model;
  std::vector<data::DatasetView> parts;  // one a node
  std::optional<data::DatasetView> evaluation;
  std::unique_ptr<const topologies::Topology> topology;  // null where everybody hears everybody
  Plan plan;
  sim::Network network;
  sim::Population population;
  model::Parameters initial;

  Node nodes() const { return options.topology.nodes; }
  std::size_t parameters() const { return initial.size(); }
  // Whether messages may fail to come, so that nobody waits for ever.
  bool lossy() const { return network.lossy() || population.churns(); }
};

// Fails with the sentence of whichever part refuses.
[[nodiscard]] Result<Experiment> prepare(const NetOptions& options);

}  // namespace starling::gossip
