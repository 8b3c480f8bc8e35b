// SPDX-License-Identifier: Apache-2.0
// What a peer trains with: its rows in the order that the same node of a simulation takes them, and
// the scratch of the one thread that computes. Outlives epochs: the order of the batches and the
// optimizer's state continue.
#pragma once

#include <optional>

#include "core/data/dataset.h"
#include "gossip/fallback/fallback_pace.h"
#include "gossip/peer/network_run.h"
#include "gossip/simulation/node_training.h"

namespace starling::gossip {

class LocalSteps {
 public:
  // The node's batches from `step` on. `pace`: of a fallback, whose steps stand for rounds.
  LocalSteps(const NetworkRun& run, const data::DatasetView& rows, Node node, std::uint64_t step,
             std::optional<FallbackPace> pace = {});

  NodeTraining training() { return NodeTraining(data_, stepper_); }
  double rate_at(std::uint64_t step) const;
  // After the model was replaced by another's: momentum of old gradients means nothing there.
  void forget_momentum();

 private:
  const train::TrainOptions options_;
  const std::uint64_t steps_;  // of the run
  const std::optional<FallbackPace> pace_;
  train::Stepper stepper_;
  NodeData data_;
};

// "diverged": what a run ends with whose loss in this step was no number.
Error diverged(std::uint64_t step);

}  // namespace starling::gossip
