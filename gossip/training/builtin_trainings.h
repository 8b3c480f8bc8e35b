// SPDX-License-Identifier: Apache-2.0
// Nodes that train the built-in models: their rows, and how they borrow a thread's scratch.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/data/batch_sampler.h"
#include "core/train/optimizer.h"
#include "core/train/stepper.h"
#include "gossip/training/node_trainings.h"

namespace starling::gossip {

// Lasts as long as the node: its rows, where it stands in their order, its optimizer's state.
struct NodeData {
  std::shared_ptr<const data::Dataset> dataset;
  data::BatchSampler sampler;
  std::optional<train::Optimizer> optimizer;  // none for plain SGD

  // Batches are always full: they wrap over epochs, each in a fresh order.
  NodeData(const data::DatasetView& view, const train::TrainOptions& options, Rng rng,
           const train::Stepper& stepper);
};

// Lasts for one local phase. Both must outlive it.
class NodeTraining final : public LocalTraining<float> {
 public:
  NodeTraining(NodeData& data, train::Stepper& stepper) : data_(data), stepper_(stepper) {}

  // None fails; a loss that is not finite is returned as it is.
  Result<double> step(std::span<float> x, double rate) override;
  Result<double> steps(std::span<float> x, double rate, int count) override;
  Result<double> gradient(std::span<const float> x, std::span<float> gradient) override;

 private:
  double step_once(std::span<float> x, double rate);

  NodeData& data_;
  train::Stepper& stepper_;
};

class BuiltinTrainings final : public NodeTrainings {
 public:
  // No node yet.
  BuiltinTrainings(std::shared_ptr<const model::Model> model, const train::TrainOptions& options,
                   unsigned threads);

  // The next node: `rows` in the order that the run's seed and `number` give, after `step` batches.
  void add(const data::DatasetView& rows, std::uint64_t seed, Node number, std::uint64_t step = 0);

  std::unique_ptr<LocalTraining<float>> begin(Node node, unsigned thread,
                                              std::uint64_t step) override;
  void forget_momentum(Node node) override;
  void archive(Archive& state) override;

 private:
  const train::TrainOptions options_;
  std::vector<train::Stepper> steppers_;  // [threads]
  std::vector<NodeData> nodes_;
};

}  // namespace starling::gossip
