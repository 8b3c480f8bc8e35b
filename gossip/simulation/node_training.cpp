// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/node_training.h"

namespace starling::gossip {

NodeData::NodeData(const data::DatasetView& view, const train::TrainOptions& options, Rng rng,
                   const train::Stepper& stepper)
    : dataset(view.dataset),
      sampler(view, static_cast<std::size_t>(options.batch_size), rng, data::LastBatch::kWrap) {
  if (stepper.is_stateless()) return;
  const model::Model& model = stepper.model();
  optimizer.emplace(options, model.layout()->size(), model.kernels());
}

double NodeTraining::step(std::span<float> x, double rate) {
  const auto rows = data_.sampler.next();
  const double loss_sum = data_.optimizer
                              ? stepper_.step(x, *data_.dataset, rows, rate, *data_.optimizer)
                              : stepper_.step(x, *data_.dataset, rows, rate);
  return loss_sum / static_cast<double>(rows.size());
}

double NodeTraining::gradient(std::span<const float> x, std::span<float> gradient) {
  const auto rows = data_.sampler.next();
  return stepper_.gradient(x, *data_.dataset, rows, gradient) / static_cast<double>(rows.size());
}

}  // namespace starling::gossip
