// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/model_evaluator.h"

namespace starling::coordinator {

Result<train::Evaluation> evaluate_by(client::Trainer& trainer, const RunContext& context,
                                      Round round, const model::Snapshot& model,
                                      const std::atomic<bool>& stop) {
  const Settings settings = context.settings();
  const client::TrainingRequest request{
      .settings = settings,
      .seed = context.job.job.seed,
      .round = round,
      .rounds = static_cast<std::uint32_t>(context.job.job.rounds)};
  return trainer.evaluate(request, model->values(), stop);
}

}  // namespace starling::coordinator
