// SPDX-License-Identifier: Apache-2.0
// Nodes that train with a custom trainer (core/client/TRAINER.md). A local phase is one task: its
// `round` is the number of its first step, from 1, of as many `rounds` as the run has steps. H
// steps are one `fit` with local-steps = H; single steps, and those of an optimizer that remembers,
// are `gradient` requests with the optimizer here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/client/trainer_steps.h"
#include "gossip/training/node_trainings.h"
#include "gossip/training/retries.h"

namespace starling::gossip {

class ProcessTrainings final : public NodeTrainings {
 public:
  struct Options {
    std::shared_ptr<const model::Layout> layout;  // of the run's model
    train::TrainOptions train;
    client::TrainerSettings settings;
    std::uint64_t seed = 1;
    std::uint64_t steps = 1;  // of the run
  };
  // One host a thread; `clients`: the nodes' names. A call returns "stopped" soon after the
  // retries' `stop` becomes true. All must outlive it.
  ProcessTrainings(Options options, std::vector<client::TrainerHost*> hosts,
                   std::vector<std::string> clients, Retries retries);

  std::unique_ptr<LocalTraining<float>> begin(Node node, unsigned thread,
                                              std::uint64_t step) override;
  void forget_momentum(Node node) override { optimizers_[node].reset(); }
  void archive(Archive& state) override;

 private:
  class Phase;
  // "tensors-differ": a process that was started again may have another model.
  Result<void> check_model(client::TrainerHost& host) const;

  const Options options_;
  const std::vector<client::TrainerHost*> hosts_;
  const std::vector<std::string> clients_;
  const Retries retries_;
  std::vector<client::TrainerSteps> steps_;            // [threads]
  std::vector<linalg::AlignedVector<float>> results_;  // [threads], of a fit
  std::vector<train::Optimizer> optimizers_;           // [nodes]
};

}  // namespace starling::gossip
