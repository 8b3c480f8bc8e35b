// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/model_evaluator.h"

#include "core/client/checked_trainer.h"
#include "core/client/process_trainer.h"

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

Result<model::Snapshot> initialize_by(client::TrainerHost& host, const std::string& client,
                                      const Job& job, const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const client::TrainerDescription found,
                  host.describe(job.training.trainer.object(), stop));
  STARLING_ASSIGN(model::Parameters made, client::room_for(found));
  const Settings settings = job.training.to_settings();
  const client::TrainingRequest request{.settings = settings,
                                        .seed = job.job.seed,
                                        .round = 1,
                                        .rounds = static_cast<std::uint32_t>(job.job.rounds)};
  client::ProcessTrainer trainer(client, host);
  STARLING_TRY(trainer.initialize(request, made.values(), stop));
  return std::make_shared<const model::Parameters>(std::move(made));
}

}  // namespace starling::coordinator
