// SPDX-License-Identifier: Apache-2.0
// Custom trainers (model.kind = "external") of a network: what a run needs of one, and the
// processes that all nodes of a simulation share.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/client/trainer_workers.h"
#include "core/train/evaluator.h"
#include "gossip/training/options.h"
#include "gossip/training/process_trainings.h"

namespace starling::gossip {

// node-0001, ...: of a simulated node, and of the same node of a launched network.
std::string node_name(Node node);

// "tensors-differ" where the model is built in, or model.layout is not that of the trainer's;
// "algorithm-trainer" where the algorithm or the optimizer needs what the trainer does not offer,
// or would spoil the model's buffers; says with which algorithms it can go on.
[[nodiscard]] Result<void> check_trainer(const NetOptions& options,
                                         const client::TrainerDescription& trainer);

// model.initial, without it what the trainer makes of the run's seed: asked for this client, and
// the same for all whose trainers take their random numbers from it. "tensors-differ" where the
// file is not of the trainer's model.
[[nodiscard]] Result<model::Parameters> initial_model(const NetOptions& options,
                                                      const std::string& client,
                                                      client::TrainerHost& host,
                                                      const std::atomic<bool>& stop);

// How nodes of the run train.
ProcessTrainings::Options training_options(const NetOptions& options,
                                           std::shared_ptr<const model::Layout> layout);

// Its methods may be called from as many threads as there are workers.
class NetworkTrainers {
 public:
  // Starts one process, asks it what it can do, and checks it; the others start when they are
  // needed. `log` must outlive it. Errors: those of TrainerHost::describe and check_trainer.
  [[nodiscard]] static Result<std::shared_ptr<const NetworkTrainers>> start(
      const NetOptions& options, const client::TrainerOptions& trainer, unsigned workers, Log& log);

  const client::TrainerOptions& options() const { return options_; }
  const std::shared_ptr<const model::Layout>& layout() const { return description_.layout; }
  [[nodiscard]] Result<model::Parameters> initial(const NetOptions& options) const;
  // Of all nodes, one thread a worker. Must not outlive this object.
  std::unique_ptr<NodeTrainings> trainings(const NetOptions& options) const;

  // From any thread: what is asked now and later ends soon, without a result.
  void cancel() const { stop_ = true; }

  bool can_evaluate() const;
  // On the rows that the node holds out. None where it failed, which is logged.
  std::optional<train::Evaluation> evaluate(const NetOptions& options, Node node,
                                            std::uint64_t step, std::span<const float> model,
                                            unsigned worker) const;

 private:
  NetworkTrainers(client::TrainerOptions options, client::TrainerWorkers workers, Log& log)
      : options_(std::move(options)), workers_(std::move(workers)), log_(log) {}

  Retries retries() const;

  const client::TrainerOptions options_;
  const client::TrainerWorkers workers_;
  Log& log_;
  mutable std::atomic<bool> stop_ = false;
  client::TrainerDescription description_;
};

}  // namespace starling::gossip
