// SPDX-License-Identifier: Apache-2.0
#include "core/client/local_trainer.h"

#include <fmt/format.h>

#include "core/linalg/aligned.h"

namespace starling::client {
namespace {

Result<void> check_base(const protocol::RoundPlan& plan, const SharedBytes& base, bool verify) {
  if (plan.schema.vectors.size() != 1 ||
      plan.schema.vectors[0].elements * sizeof(float) != base.size()) {
    return unsupported("wrong-vectors", "the plan asks for vectors that this client cannot make");
  }
  if (verify && sha256(base.view()) != plan.base.sha256) {
    return retry("model-damaged", "the model that arrived has another SHA-256 than its plan names");
  }
  return {};
}

}  // namespace

Result<train::LocalTrainer*> TrainerCache::trainer_for(const TrainingRequest& request,
                                                       std::size_t elements) {
  const bool same = trainer_ && std::equal(request.settings.begin(), request.settings.end(),
                                           settings_.begin(), settings_.end());
  if (!same) STARLING_TRY(remake({request.settings.begin(), request.settings.end()}));
  if (elements != elements_) {
    return rejected("wrong-vectors",
                    fmt::format("the plan's model has {} parameters; what arrived has {}",
                                elements_, elements));
  }
  return trainer_.get();
}

Result<void> TrainerCache::remake(Settings settings) {
  STARLING_ASSIGN(const TrainingSettings parsed, TrainingSettings::parse(settings));
  STARLING_ASSIGN(auto model, parsed.make_model());
  elements_ = model->layout()->size();
  trainer_ = std::make_unique<train::LocalTrainer>(std::move(model), parsed.train);
  settings_ = std::move(settings);
  return {};
}

Result<TrainingReport> BuiltinTrainer::train(const TrainingRequest& request,
                                             std::span<float> parameters,
                                             const std::atomic<bool>& stop) {
  STARLING_ASSIGN(train::LocalTrainer * trainer, cache_.trainer_for(request, parameters.size()));
  // Not keyed by the attempt: a later attempt of the round can use the same update.
  const Rng rng({.seed = request.seed,
                 .purpose = Purpose::kBatches,
                 .node = hash_name(client_),
                 .round = request.round});
  STARLING_ASSIGN(const train::TrainResult result,
                  trainer->train(parameters, data_, request.round, request.rounds, rng, stop));
  return TrainingReport{.weight = static_cast<double>(data_.size()),
                        .train_loss = result.train_loss,
                        .samples = result.samples,
                        .steps = result.steps};
}

Result<PendingUpdate> make_update(const protocol::RoundPlan& plan, const SharedBytes& base,
                                  Trainer& trainer, bool verify_base,
                                  const std::atomic<bool>& stop) {
  STARLING_TRY(check_base(plan, base, verify_base));
  strategy::StrategyOptions options;
  STARLING_TRY(from_settings("strategy", plan.settings, options));
  STARLING_ASSIGN(const auto strategy, strategy::make_client_strategy(options));
  const std::span<const float> base_values(reinterpret_cast<const float*>(base.view().data()),
                                           base.size() / sizeof(float));
  linalg::AlignedVector<float> trained(base_values.begin(), base_values.end());
  const TrainingRequest request{
      .settings = plan.settings, .seed = plan.seed, .round = plan.round, .rounds = plan.rounds};
  STARLING_ASSIGN(const TrainingReport report, trainer.train(request, trained, stop));
  SharedBytes payload = strategy->contribute(base_values, std::move(trained));
  update::ContributionHead head{.task = plan.task,
                                .base = plan.base,
                                .weight = report.weight,
                                .vectors = plan.schema.vectors,
                                .scalars = {{"train_loss", report.train_loss}},
                                .payload_bytes = payload.size(),
                                .payload_checksum = checksum(payload.view())};
  return PendingUpdate{std::move(head), std::move(payload)};
}

}  // namespace starling::client
