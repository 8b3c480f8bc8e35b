// SPDX-License-Identifier: Apache-2.0
// What a peer trains with: its rows in the order that the same node of a simulation takes them, or
// its trainer, and the scratch of the one thread that computes. Outlives epochs: the order of the
// batches and the optimizer's state continue.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "core/data/dataset.h"
#include "gossip/fallback/fallback_pace.h"
#include "gossip/peer/network_run.h"
#include "gossip/training/node_trainings.h"

namespace starling::gossip {

class LocalSteps {
 public:
  // Of the member `node`, from `step` on. `pace`: of a fallback, whose steps stand for rounds.
  LocalSteps(const NetworkRun& run, const data::DatasetView& rows, Node node, std::uint64_t step,
             std::optional<FallbackPace> pace = {});
  // With a trainer, which names the member as its client and must outlive this. A task that fails
  // is repeated for as long as it takes; `warn` is told each time, on the thread that trains.
  LocalSteps(const NetworkRun& run, client::TrainerHost& trainer, const std::string& client,
             std::function<void(const std::string& line)> warn);

  // For the local phase that begins at `step`.
  std::unique_ptr<LocalTraining<float>> training(std::uint64_t step) {
    return trainings_->begin(0, 0, step);
  }
  double rate_at(std::uint64_t step) const;
  // After the model was replaced by another's: momentum of old gradients means nothing there.
  void forget_momentum() { trainings_->forget_momentum(0); }
  // A phase of the trainer's ends soon, with "stopped", as do all that begin before resume().
  void cancel() { cancelled_ = true; }
  void resume() { cancelled_ = false; }

 private:
  const train::TrainOptions options_;
  const std::uint64_t steps_;  // of the run
  const std::optional<FallbackPace> pace_;
  std::atomic<bool> cancelled_ = false;
  std::unique_ptr<NodeTrainings> trainings_;
};

// "diverged": what a run ends with whose loss in this step was no number. `suspect`: the member
// that sent numbers that may have done it, or empty.
Error diverged(std::uint64_t step, const std::string& suspect = {});

}  // namespace starling::gossip
