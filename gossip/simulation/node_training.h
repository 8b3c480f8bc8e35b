// SPDX-License-Identifier: Apache-2.0
// What one simulated node trains on, and how it borrows a thread's scratch while it does.
#pragma once

#include <optional>
#include <span>

#include "core/data/batch_sampler.h"
#include "core/train/optimizer.h"
#include "core/train/stepper.h"
#include "gossip/algorithms/algorithm.h"

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

  double step(std::span<float> x, double rate) override;
  double gradient(std::span<const float> x, std::span<float> gradient) override;

 private:
  NodeData& data_;
  train::Stepper& stepper_;
};

}  // namespace starling::gossip
