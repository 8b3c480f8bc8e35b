// SPDX-License-Identifier: Apache-2.0
// External models at the coordinator: it cannot compute with them, a custom trainer can.
#pragma once

#include <atomic>
#include <string_view>

#include "coordinator/rounds/run_context.h"
#include "core/client/trainer.h"

namespace starling::coordinator {

// The client that the trainer's tasks name.
inline constexpr std::string_view kEvaluatorClient = "coordinator";

class ModelEvaluator {
 public:
  virtual ~ModelEvaluator() = default;
  // Of the model of this round. Called on compute threads, of several runs at a time.
  [[nodiscard]] virtual Result<train::Evaluation> evaluate(const RunContext& context, Round round,
                                                           const model::Snapshot& model) = 0;
};

// By `trainer`, which is of the client kEvaluatorClient.
[[nodiscard]] Result<train::Evaluation> evaluate_by(client::Trainer& trainer,
                                                    const RunContext& context, Round round,
                                                    const model::Snapshot& model,
                                                    const std::atomic<bool>& stop);

}  // namespace starling::coordinator
