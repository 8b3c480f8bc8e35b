// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/builtin_trainings.h"

#include "gossip/training/archive_optimizer.h"

namespace starling::gossip {

NodeData::NodeData(const data::DatasetView& view, const train::TrainOptions& options, Rng rng,
                   const train::Stepper& stepper)
    : dataset(view.dataset),
      sampler(view, static_cast<std::size_t>(options.batch_size), rng, data::LastBatch::kWrap) {
  if (stepper.is_stateless()) return;
  const model::Model& model = stepper.model();
  optimizer.emplace(options, model.layout()->size(), model.kernels());
}

double NodeTraining::step_once(std::span<float> x, double rate) {
  const auto rows = data_.sampler.next();
  const double loss_sum = data_.optimizer
                              ? stepper_.step(x, *data_.dataset, rows, rate, *data_.optimizer)
                              : stepper_.step(x, *data_.dataset, rows, rate);
  return loss_sum / static_cast<double>(rows.size());
}

Result<double> NodeTraining::step(std::span<float> x, double rate) { return step_once(x, rate); }

Result<double> NodeTraining::steps(std::span<float> x, double rate, int count) {
  double loss = 0;
  for (int k = 0; k < count; ++k) loss += step_once(x, rate);
  return loss;
}

Result<double> NodeTraining::gradient(std::span<const float> x, std::span<float> gradient) {
  const auto rows = data_.sampler.next();
  return stepper_.gradient(x, *data_.dataset, rows, gradient) / static_cast<double>(rows.size());
}

BuiltinTrainings::BuiltinTrainings(std::shared_ptr<const model::Model> model,
                                   const train::TrainOptions& options, unsigned threads)
    : options_(options) {
  for (unsigned thread = 0; thread < threads; ++thread) {
    steppers_.emplace_back(model, options);
    steppers_.back().begin(static_cast<std::size_t>(options.batch_size));
  }
}

void BuiltinTrainings::add(const data::DatasetView& rows, std::uint64_t seed, Node number,
                           std::uint64_t step) {
  nodes_.emplace_back(rows, options_,
                      Rng({.seed = seed, .purpose = Purpose::kBatches, .node = number}),
                      steppers_.front());
  for (std::uint64_t skipped = 0; skipped < step; ++skipped) (void)nodes_.back().sampler.next();
}

std::unique_ptr<LocalTraining<float>> BuiltinTrainings::begin(Node node, unsigned thread,
                                                              std::uint64_t) {
  return std::make_unique<NodeTraining>(nodes_[node], steppers_[thread]);
}

void BuiltinTrainings::forget_momentum(Node node) {
  if (nodes_[node].optimizer) nodes_[node].optimizer->reset();
}

void BuiltinTrainings::archive(Archive& state) {
  for (NodeData& node : nodes_) {
    node.sampler.archive(state);
    if (node.optimizer) archive_optimizer(state, *node.optimizer);
  }
}

}  // namespace starling::gossip
