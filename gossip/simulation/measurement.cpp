// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/measurement.h"

#include <algorithm>
#include <numeric>

#include "core/linalg/sum.h"
#include "gossip/simulation/mean_model.h"

namespace starling::gossip {
namespace {

std::vector<Node> draw_nodes(const NetOptions& options) {
  std::vector<Node> nodes(options.topology.nodes);
  std::iota(nodes.begin(), nodes.end(), Node{0});
  const std::size_t wanted = std::min<std::size_t>(options.evaluate.nodes, nodes.size());
  if (wanted < nodes.size()) {
    Rng rng({.seed = options.run.seed, .purpose = Purpose::kSelection});
    rng.shuffle(std::span(nodes));
    nodes.resize(wanted);
    std::ranges::sort(nodes);
  }
  return nodes;
}

template <class T>
void add(Sha256& hash, const T& value) {
  hash.update(std::as_bytes(std::span(&value, 1)));
}

NetworkState state_of(const NetworkSimulation& simulation, Node nodes) {
  NetworkState state{.totals = simulation.totals(), .models = {}, .present = {}};
  for (Node node = 0; node < nodes; ++node) {
    state.models.push_back(simulation.model(node));
    state.present.push_back(simulation.present(node));
  }
  return state;
}

}  // namespace

Measurer::Measurer(const Experiment& experiment, ComputePool& pool)
    : experiment_(experiment),
      pool_(pool),
      evaluated_(draw_nodes(experiment.options)),
      mean_(experiment.model->layout()) {}

void Measurement::set_traffic(const Traffic& traffic) {
  messages_arrived = traffic.arrived;
  messages_late = traffic.late;
  messages_lost = traffic.lost;
  if (traffic.arrived == 0) return;
  staleness = static_cast<double>(traffic.staleness) / static_cast<double>(traffic.arrived);
}

Measurement Measurer::measure(const NetworkSimulation& simulation) {
  Measurement measurement = measure(state_of(simulation, experiment_.nodes()));
  measurement.set_traffic(simulation.totals().traffic);
  simulation.trace(trace_);
  return measurement;
}

Measurement Measurer::measure(const NetworkState& state) {
  present_ = state.present;
  const Totals& totals = state.totals;
  Measurement measurement{.step = totals.step,
                          .virtual_seconds = totals.virtual_seconds,
                          .bytes_sent = totals.traffic.bytes_sent,
                          .messages = totals.traffic.messages};
  std::vector<std::span<const float>> models;
  for (Node node = 0; node < experiment_.nodes(); ++node) {
    if (state.present[node]) models.push_back(state.models[node]);
  }
  measurement.nodes_up = models.size();
  if (models.empty()) models = state.models;
  mean_of(models, mean_.values(), pool_);
  measurement.consensus_distance = consensus_distance(models, pool_);
  if (totals.node_steps > last_.node_steps) {
    measurement.train_loss = (totals.loss_sum - last_.loss_sum) /
                             static_cast<double>(totals.node_steps - last_.node_steps);
  }
  if (experiment_.evaluation) evaluate_nodes(state, measurement);
  continue_trace(state);
  last_ = totals;
  return measurement;
}

// Equal models are evaluated once: at the start and under all-reduce every node has the same.
train::Evaluation Measurer::evaluate(std::span<const float> parameters) {
  const std::uint64_t key = checksum(std::as_bytes(parameters));
  const auto known = evaluations_.find(key);
  if (known != evaluations_.end()) return known->second;
  const auto evaluation =
      train::evaluate(*experiment_.model, parameters, *experiment_.evaluation, &pool_);
  return evaluations_.emplace(key, *evaluation).first->second;
}

void Measurer::evaluate_nodes(const NetworkState& state, Measurement& measurement) {
  std::vector<double> losses;
  std::vector<double> accuracies;
  evaluations_.clear();
  for (const Node node : evaluated_) {
    if (!state.present[node] && measurement.nodes_up > 0) continue;
    const train::Evaluation score = evaluate(state.models[node]);
    losses.push_back(score.loss);
    accuracies.push_back(score.accuracy.value());
  }
  if (!losses.empty()) {
    const auto count = static_cast<double>(losses.size());
    measurement.eval_loss = linalg::pairwise_sum(losses) / count;
    measurement.eval_accuracy = linalg::pairwise_sum(accuracies) / count;
    measurement.eval_accuracy_min = *std::ranges::min_element(accuracies);
    measurement.eval_accuracy_max = *std::ranges::max_element(accuracies);
  }
  const train::Evaluation mean = evaluate(mean_.values());
  measurement.eval_loss_mean_model = mean.loss;
  measurement.eval_accuracy_mean_model = mean.accuracy.value();
}

void Measurer::continue_trace(const NetworkState& state) {
  checksums_.resize(state.models.size());
  pool_.for_each(checksums_.size(), [&](std::size_t node, unsigned) {
    checksums_[node] = checksum(std::as_bytes(state.models[node]));
  });
  trace_.update(std::as_bytes(std::span(checksums_)));
  const Totals& totals = state.totals;
  add(trace_, totals.step);
  add(trace_, totals.node_steps);
  add(trace_, totals.virtual_seconds);
  add(trace_, totals.traffic.messages);
  add(trace_, totals.traffic.bytes_sent);
}

Sha256Digest Measurer::models_digest() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(checksums_)));
  return std::move(hash).finish();
}

Sha256Digest Measurer::trace() && { return std::move(trace_).finish(); }

}  // namespace starling::gossip
