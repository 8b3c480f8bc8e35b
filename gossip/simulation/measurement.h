// SPDX-License-Identifier: Apache-2.0
// What a simulation shows at an evaluation, and the trace that two runs share exactly where they
// took the same course.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/archive.h"
#include "core/base/compute_pool.h"
#include "core/base/digest.h"
#include "core/train/evaluator.h"
#include "gossip/simulation/network_simulation.h"

namespace starling::gossip {

struct Measurement {
  std::uint64_t step = 0;
  double virtual_seconds = 0;
  double wall_seconds = 0;
  std::optional<double> train_loss;  // mean over the node steps since the last evaluation
  std::optional<double> eval_loss;   // of the evaluated nodes, like the next three
  std::optional<double> eval_accuracy;
  std::optional<double> eval_accuracy_min;
  std::optional<double> eval_accuracy_max;
  std::optional<double> eval_loss_mean_model;
  std::optional<double> eval_accuracy_mean_model;
  train::Metrics eval_metrics;  // a custom trainer's, of the evaluated nodes that say them
  double consensus_distance = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages = 0;
  // What became of them.
  std::optional<std::uint64_t> messages_arrived;
  std::optional<std::uint64_t> messages_late;
  std::optional<std::uint64_t> messages_lost;
  std::optional<double> staleness;  // mean over those that arrived; none: nothing did
  std::uint64_t nodes_up = 0;

  void set_traffic(const Traffic& traffic);
  // Of the evaluated nodes' models; nothing where there are none.
  void set_evaluations(std::span<const train::Evaluation> scores);
  void archive(Archive& state);
};

// What is measured: a network at one moment, simulated or not.
struct NetworkState {
  Totals totals;
  std::vector<std::span<const float>> models;  // [nodes]
  std::vector<bool> present;                   // [nodes]
};

class Measurer {
 public:
  // Both must outlive it.
  Measurer(const Experiment& experiment, ComputePool& pool);

  // Measures and continues the trace. Over the nodes that are there; where none is, over all.
  Measurement measure(const NetworkSimulation& simulation);
  Measurement measure(const NetworkState& state);

  // The mean of the models at the last measurement.
  const model::Parameters& mean_model() const { return mean_; }
  // Who was there then. [nodes]
  const std::vector<bool>& present() const { return present_; }
  // SHA-256 over the checksums of all nodes' models at the last measurement: equal where every node
  // ended with the same bits.
  Sha256Digest models_digest() const;
  // SHA-256 over every measurement so far: each node's model, the times and the totals.
  const Sha256Digest& trace() const { return trace_; }

  // What the next measurement goes on from.
  void archive(Archive& state);

 private:
  std::vector<Node> evaluated_now(const NetworkState& state) const;
  train::Evaluation evaluate(std::span<const float> parameters);
  void evaluate_nodes(const NetworkState& state, Measurement& measurement);
  void evaluate_by_trainers(const NetworkState& state, Measurement& measurement);
  // Chains what visit(hash) adds to the trace so far.
  template <class Visit>
  void continue_trace(const Visit& visit);
  void trace_models(const NetworkState& state);

  const Experiment& experiment_;
  ComputePool& pool_;
  std::vector<Node> evaluated_;
  model::Parameters mean_;
  std::unordered_map<std::uint64_t, train::Evaluation> evaluations_;  // by the model's checksum
  std::vector<bool> present_;
  std::vector<std::uint64_t> checksums_;  // of the models, [nodes]
  Sha256Digest trace_;                    // of the trace before and of the last measurement
  Totals last_;
};

}  // namespace starling::gossip
