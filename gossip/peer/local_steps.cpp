// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/local_steps.h"

#include <fmt/format.h>

namespace starling::gossip {
namespace {

train::Stepper ready_stepper(const NetworkRun& run) {
  const train::TrainOptions& options = run.options.train.train;
  train::Stepper stepper(run.model, options);
  stepper.begin(static_cast<std::size_t>(options.batch_size));
  return stepper;
}

}  // namespace

LocalSteps::LocalSteps(const NetworkRun& run, const data::DatasetView& rows, Node node,
                       std::uint64_t step, std::optional<FallbackPace> pace)
    : options_(run.options.train.train),
      steps_(run.options.run.steps),
      pace_(pace),
      stepper_(ready_stepper(run)),
      data_(rows, run.options.train.train,
            Rng({.seed = run.options.run.seed, .purpose = Purpose::kBatches, .node = node}),
            stepper_) {
  for (std::uint64_t skipped = 0; skipped < step; ++skipped) (void)data_.sampler.next();
}

double LocalSteps::rate_at(std::uint64_t step) const {
  if (pace_) return train::learning_rate_at(options_, pace_->round_at(step), pace_->rounds);
  return train::learning_rate_at(options_, static_cast<Round>(step + 1),
                                 static_cast<Round>(steps_));
}

void LocalSteps::forget_momentum() {
  if (data_.optimizer) data_.optimizer->reset();
}

Error diverged(std::uint64_t step) {
  return rejected("diverged",
                  fmt::format("the loss is not finite in step {}: lower train.learning-rate or "
                              "set train.clip-norm",
                              step + 1));
}

}  // namespace starling::gossip
