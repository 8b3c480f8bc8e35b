// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/measurement.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
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

// In the order of the nodes. Requires: not empty.
double mean_of_numbers(std::span<const double> numbers) {
  return linalg::pairwise_sum(numbers) / static_cast<double>(numbers.size());
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
      mean_(experiment.layout()) {}

template <class Visit>
void Measurer::continue_trace(const Visit& visit) {
  Sha256 hash;
  hash.update(trace_.bytes());
  visit(hash);
  trace_ = std::move(hash).finish();
}

void Measurement::set_traffic(const Traffic& traffic) {
  messages_arrived = traffic.arrived;
  messages_late = traffic.late;
  messages_lost = traffic.lost;
  if (traffic.arrived == 0) return;
  staleness = static_cast<double>(traffic.staleness) / static_cast<double>(traffic.arrived);
}

void Measurement::set_evaluations(std::span<const train::Evaluation> scores) {
  if (scores.empty()) return;
  std::vector<double> losses, accuracies;
  std::map<std::string, std::vector<double>> metrics;
  for (const train::Evaluation& score : scores) {
    losses.push_back(score.loss);
    if (score.accuracy) accuracies.push_back(*score.accuracy);
    for (const auto& [name, value] : score.metrics) metrics[name].push_back(value);
  }
  eval_loss = mean_of_numbers(losses);
  for (const auto& [name, values] : metrics) eval_metrics[name] = mean_of_numbers(values);
  if (accuracies.empty()) return;
  eval_accuracy = mean_of_numbers(accuracies);
  eval_accuracy_min = *std::ranges::min_element(accuracies);
  eval_accuracy_max = *std::ranges::max_element(accuracies);
}

void Measurement::archive(Archive& state) {
  state(step);
  state(virtual_seconds);
  state(wall_seconds);
  for (std::optional<double>* value :
       {&train_loss, &eval_loss, &eval_accuracy, &eval_accuracy_min, &eval_accuracy_max,
        &eval_loss_mean_model, &eval_accuracy_mean_model, &staleness}) {
    state(*value);
  }
  const std::size_t metrics = state.count(eval_metrics.size(), 1);
  std::vector<std::pair<std::string, double>> pairs(eval_metrics.begin(), eval_metrics.end());
  pairs.resize(metrics);
  for (auto& [name, value] : pairs) {
    state(name);
    state(value);
  }
  eval_metrics = {pairs.begin(), pairs.end()};
  state(consensus_distance);
  state(bytes_sent);
  state(messages);
  for (std::optional<std::uint64_t>* count : {&messages_arrived, &messages_late, &messages_lost}) {
    state(*count);
  }
  state(nodes_up);
}

Measurement Measurer::measure(const NetworkSimulation& simulation) {
  Measurement measurement = measure(state_of(simulation, experiment_.nodes()));
  measurement.set_traffic(simulation.totals().traffic);
  continue_trace([&](Sha256& hash) { simulation.trace(hash); });
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
  const bool by_trainers = experiment_.trainers && experiment_.trainers->can_evaluate();
  if (by_trainers && experiment_.options.evaluate.dataset != "none") {
    evaluate_by_trainers(state, measurement);
  }
  trace_models(state);
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

// Those to evaluate that are there; where none is, all of them.
std::vector<Node> Measurer::evaluated_now(const NetworkState& state) const {
  std::vector<Node> nodes;
  std::ranges::copy_if(evaluated_, std::back_inserter(nodes),
                       [&](Node node) { return state.present[node]; });
  const bool nobody = std::ranges::none_of(state.present, [](bool here) { return here; });
  return nobody ? evaluated_ : nodes;
}

void Measurer::evaluate_nodes(const NetworkState& state, Measurement& measurement) {
  std::vector<train::Evaluation> scores;
  evaluations_.clear();
  for (const Node node : evaluated_now(state)) scores.push_back(evaluate(state.models[node]));
  measurement.set_evaluations(scores);
  const train::Evaluation mean = evaluate(mean_.values());
  measurement.eval_loss_mean_model = mean.loss;
  measurement.eval_accuracy_mean_model = mean.accuracy.value();
}

// Each node's model on the rows that it holds out, and the mean of the models on those of all.
void Measurer::evaluate_by_trainers(const NetworkState& state, Measurement& measurement) {
  const std::vector<Node> nodes = evaluated_now(state);
  std::vector<std::optional<train::Evaluation>> own(nodes.size()), of_mean(nodes.size());
  const std::span<const float> mean = mean_.values();
  pool_.for_each(nodes.size(), [&](std::size_t i, unsigned worker) {
    const std::span<const float> model = state.models[nodes[i]];
    const auto evaluate_on = [&](std::span<const float> values) {
      return experiment_.trainers->evaluate(experiment_.options, nodes[i], state.totals.step,
                                            values, worker);
    };
    own[i] = evaluate_on(model);
    of_mean[i] = std::ranges::equal(model, mean) ? own[i] : evaluate_on(mean);
  });
  std::vector<train::Evaluation> scores;
  for (const auto& score : own) {
    if (score) scores.push_back(*score);
  }
  measurement.set_evaluations(scores);
  // Weighted by rows, over the nodes that say it.
  const auto mean_of_all = [&](const auto& value_of) -> std::optional<double> {
    std::vector<double> values;
    double rows = 0;
    for (const auto& score : of_mean) {
      const std::optional<double> value = score ? value_of(*score) : std::nullopt;
      if (!value) continue;
      values.push_back(static_cast<double>(score->samples) * *value);
      rows += static_cast<double>(score->samples);
    }
    if (rows == 0) return std::nullopt;
    return linalg::pairwise_sum(values) / rows;
  };
  using Evaluation = train::Evaluation;
  measurement.eval_loss_mean_model =
      mean_of_all([](const Evaluation& e) { return std::optional(e.loss); });
  measurement.eval_accuracy_mean_model =
      mean_of_all([](const Evaluation& e) { return e.accuracy; });
}

void Measurer::trace_models(const NetworkState& state) {
  checksums_.resize(state.models.size());
  pool_.for_each(checksums_.size(), [&](std::size_t node, unsigned) {
    checksums_[node] = checksum(std::as_bytes(state.models[node]));
  });
  continue_trace([&](Sha256& hash) {
    hash.update(std::as_bytes(std::span(checksums_)));
    const Totals& totals = state.totals;
    add(hash, totals.step);
    add(hash, totals.node_steps);
    add(hash, totals.virtual_seconds);
    add(hash, totals.traffic.messages);
    add(hash, totals.traffic.bytes_sent);
  });
}

void Measurer::archive(Archive& state) {
  last_.archive(state);
  std::array<std::byte, Sha256Digest::kBytes> trace{};
  std::ranges::copy(trace_.bytes(), trace.begin());
  state.bytes(trace);
  trace_ = Sha256Digest(trace);
}

Sha256Digest Measurer::models_digest() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(checksums_)));
  return std::move(hash).finish();
}

}  // namespace starling::gossip
