// SPDX-License-Identifier: Apache-2.0
#include "core/client/process_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/client/checked_trainer.h"
#include "core/client/trainer_steps.h"
#include "core/linalg/kernels.h"
#include "core/train/local_trainer.h"
#include "core/train/optimizer.h"

namespace starling::client {
namespace {

// A simulation asks its first client for the initial model, a service its coordinator: both get the
// seed of this one.
constexpr const char* kInitialSeedOf = "client-1";

}  // namespace

Result<ProcessTrainer::Prepared> ProcessTrainer::prepare(const TrainingRequest& request,
                                                         std::size_t size,
                                                         const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const TrainingSettings settings,
                  TrainingSettings::parse({request.settings.begin(), request.settings.end()}));
  Prepared prepared{.options = settings.train,
                    .rate = train::learning_rate_at(settings.train, request.round, request.rounds)};
  prepared.task = make_task(
      {.client = client_, .seed = request.seed, .round = request.round, .rounds = request.rounds},
      prepared.options, prepared.rate, settings.trainer);
  STARLING_ASSIGN(const TrainerDescription description,
                  host_.describe(prepared.task.settings, stop));
  STARLING_TRY(check_tensors(settings.model, size, description));
  prepared.layout = description.layout;
  return prepared;
}

Result<void> ProcessTrainer::initialize(const TrainingRequest& request, std::span<float> result,
                                        const std::atomic<bool>& stop) {
  STARLING_ASSIGN(Prepared prepared, prepare(request, result.size(), stop));
  prepared.task.seed = task_seed({.client = kInitialSeedOf,
                                  .seed = request.seed,
                                  .round = request.round,
                                  .rounds = request.rounds});
  STARLING_TRY(host_.run(TrainerOperation::kInitialize, prepared.task,
                         {.parameters = {}, .result = result}, stop));
  return {};
}

Result<std::uint64_t> ProcessTrainer::rows_of(const Prepared& prepared,
                                              const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const TrainerDescription description,
                  host_.describe(prepared.task.settings, stop, client_));
  if (description.rows > 0) return description.rows;
  return unsupported("rows-unknown",
                     fmt::format("{} does not say how many rows {} has, and this run's strategy "
                                 "counts its steps by them; let its 'describe' answer 'rows'",
                                 description.name, client_));
}

Result<TrainingReport> ProcessTrainer::train(const TrainingRequest& request,
                                             std::span<float> parameters,
                                             const train::TrainingHooks<float>& hooks,
                                             const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const Prepared prepared, prepare(request, parameters.size(), stop));
  if (!hooks.correct && hooks.optimizer == nullptr) return fit(prepared, parameters, stop);
  return train_by_gradients(prepared, parameters, hooks, stop);
}

Result<TrainingReport> ProcessTrainer::fit(const Prepared& prepared, std::span<float> parameters,
                                           const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const TrainerAnswer answer,
                  host_.run(TrainerOperation::kFit, prepared.task, {parameters, parameters}, stop));
  TrainingReport report{.weight = answer.weight,
                        .train_loss = answer.loss,
                        .steps = answer.steps,
                        .rate = prepared.rate,
                        .metrics = answer.metrics};
  if (report.steps > 0) return report;
  // It does not say them: those that the options ask for over the rows that it counts as.
  const auto rows = static_cast<std::uint64_t>(std::clamp(std::ceil(answer.weight), 1.0, 1e15));
  report.steps = train::local_steps(prepared.options, rows);
  return report;
}

Result<TrainingReport> ProcessTrainer::train_by_gradients(const Prepared& prepared,
                                                          std::span<float> parameters,
                                                          const train::TrainingHooks<float>& hooks,
                                                          const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const std::uint64_t rows, rows_of(prepared, stop));
  const linalg::Kernels& kernels = linalg::default_kernels();
  train::Optimizer optimizer(prepared.options, parameters.size(), kernels);
  if (hooks.optimizer != nullptr) STARLING_TRY(optimizer.load(*hooks.optimizer));
  TrainerSteps trainer(*prepared.layout, prepared.options);
  const std::uint64_t steps = train::local_steps(prepared.options, rows);
  TrainingReport report{.weight = static_cast<double>(rows), .rate = prepared.rate};
  double loss_sum = 0, samples = 0;
  while (report.steps < steps) {
    STARLING_ASSIGN(const TrainerAnswer answer,
                    trainer.step(host_, {prepared.task, report.steps, prepared.rate}, parameters,
                                 optimizer, hooks.correct, stop));
    loss_sum += answer.loss * answer.weight;
    samples += answer.weight;
    ++report.steps;
  }
  if (!kernels.all_finite(parameters.data(), parameters.size())) {
    return rejected("diverged", fmt::format("a parameter is not finite after step {} of round {}; "
                                            "lower the learning rate or set clip-norm",
                                            report.steps, prepared.task.round));
  }
  report.train_loss = loss_sum / samples;
  if (hooks.optimizer != nullptr) *hooks.optimizer = optimizer.state();
  return report;
}

Result<double> ProcessTrainer::full_gradient(const TrainingRequest& request,
                                             std::span<const float> parameters,
                                             std::span<float> gradient,
                                             const std::atomic<bool>& stop) {
  STARLING_CHECK(gradient.size() == parameters.size());
  STARLING_ASSIGN(const Prepared prepared, prepare(request, parameters.size(), stop));
  STARLING_ASSIGN(const TrainerAnswer answer,
                  TrainerSteps(*prepared.layout, prepared.options)
                      .gradient(host_, prepared.task, std::nullopt, parameters, gradient, stop));
  return answer.loss;
}

Result<double> ProcessTrainer::loss(const TrainingRequest& request,
                                    std::span<const float> parameters,
                                    const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const Prepared prepared, prepare(request, parameters.size(), stop));
  STARLING_ASSIGN(const TrainerAnswer answer,
                  host_.run(TrainerOperation::kGradient, prepared.task, {parameters, {}}, stop));
  return answer.loss;
}

Result<train::Evaluation> ProcessTrainer::evaluate(const TrainingRequest& request,
                                                   std::span<const float> parameters,
                                                   const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const Prepared prepared, prepare(request, parameters.size(), stop));
  STARLING_ASSIGN(const TrainerAnswer answer,
                  host_.run(TrainerOperation::kEvaluate, prepared.task, {parameters, {}}, stop));
  return train::Evaluation{.loss = answer.loss,
                           .accuracy = answer.accuracy,
                           .samples = static_cast<std::uint64_t>(answer.weight),
                           .metrics = answer.metrics};
}

}  // namespace starling::client
