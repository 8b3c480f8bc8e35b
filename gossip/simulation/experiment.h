// SPDX-License-Identifier: Apache-2.0
// Everything a simulation needs before its first step, checked: data, model, topology, algorithm,
// network and nodes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/load.h"
#include "core/model/model.h"
#include "core/sim/network.h"
#include "core/sim/population.h"
#include "gossip/algorithms/make_algorithm.h"
#include "gossip/training/network_trainers.h"
#include "gossip/training/options.h"
#include "topologies/topology.h"

namespace starling::gossip {

// What runs: the algorithm's recurrence, or whole peers (protocol_simulation.h), whose protocol
// lets algorithms that are not loss-safe go on where messages are lost and nodes are away.
enum class Simulated { kRecurrence, kPeers };

struct Experiment {
  NetOptions options;
  std::shared_ptr<const model::Model> model;        // null where the trainers compute with it
  std::shared_ptr<const NetworkTrainers> trainers;  // null: the model is built in
  std::vector<data::DatasetView> parts;             // one a node; none with trainers
  std::optional<data::DatasetView> evaluation;
  std::unique_ptr<const topologies::Topology> topology;  // null where everybody hears everybody
  Plan plan;
  sim::Network network;
  sim::Population population;
  model::Parameters initial;  // common to all nodes; initial_of() may lie around it

  Node nodes() const { return options.topology.nodes; }
  std::size_t parameters() const { return initial.size(); }
  const std::shared_ptr<const model::Layout>& layout() const { return initial.layout(); }
  // What a node begins with.
  std::vector<float> initial_of(Node node) const;
  // What all nodes train with, on so many threads: with trainers no more than they have workers.
  // Must not outlive the experiment.
  std::unique_ptr<NodeTrainings> trainings(unsigned threads) const;
  // Whether messages may fail to come, so that nobody waits for ever.
  bool lossy() const { return network.lossy() || population.churns(); }
};

// What prepare() refuses that can be seen without models and trainers.
[[nodiscard]] Result<void> check(const NetOptions& options, data::ReadableDatasets& datasets,
                                 Simulated simulated = Simulated::kRecurrence);

// What is allowed and may not do what the user expects: a sentence each.
std::vector<std::string> warnings(const NetOptions& options);

// What the experiment evaluates on, where that was left to it: the rows that its nodes hold out.
// Empty: it is said elsewhere.
std::string evaluation_note(const Experiment& experiment);

// `trainers`: with model.kind = "external". Fails with the sentence of whichever part refuses.
[[nodiscard]] Result<Experiment> prepare(const NetOptions& options,
                                         std::shared_ptr<const NetworkTrainers> trainers = {},
                                         Simulated simulated = Simulated::kRecurrence);

}  // namespace starling::gossip
