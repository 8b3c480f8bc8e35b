// SPDX-License-Identifier: Apache-2.0
// External models at the coordinator: it cannot compute with them, a custom trainer can. It
// evaluates them, and makes the first one of a run whose job names no file.
#pragma once

#include <atomic>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "coordinator/rounds/run_context.h"
#include "core/client/trainer.h"
#include "core/client/trainer_host.h"

namespace starling::coordinator {

// The client that the trainer's tasks name.
inline constexpr std::string_view kEvaluatorClient = "coordinator";

// Calls come from compute threads, of several runs at a time, and return "stopped" soon after
// `stop` is requested.
class ModelEvaluator {
 public:
  virtual ~ModelEvaluator() = default;
  // Of the model of this round.
  [[nodiscard]] virtual Result<train::Evaluation> evaluate(RunId run, const RunContext& context,
                                                           Round round,
                                                           const model::Snapshot& model,
                                                           const std::stop_token& stop) = 0;
  // Whether initialize() is what makes the models of jobs that name no file.
  virtual bool makes_models() const { return true; }
  // The model that a run of this job begins with.
  [[nodiscard]] virtual Result<model::Snapshot> initialize(RunId run, const Job& job,
                                                           const std::stop_token& stop) = 0;
  // The run that the trainer computes for now; none: for no run.
  virtual std::optional<RunId> at_work_for() const = 0;
};

// By `trainer`, which is of the client kEvaluatorClient.
[[nodiscard]] Result<train::Evaluation> evaluate_by(client::Trainer& trainer,
                                                    const RunContext& context, Round round,
                                                    const model::Snapshot& model,
                                                    const std::atomic<bool>& stop);

// What the trainer of `host`, asked as `client`, makes of the job's seed. "unsupported-operation"
// where it makes none.
[[nodiscard]] Result<model::Snapshot> initialize_by(client::TrainerHost& host,
                                                    const std::string& client, const Job& job,
                                                    const std::atomic<bool>& stop);

}  // namespace starling::coordinator
