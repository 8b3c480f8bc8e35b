// SPDX-License-Identifier: Apache-2.0
#include "core/train/local_trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/check.h"
#include "core/data/batch_sampler.h"
#include "core/train/evaluator.h"

namespace starling::train {
namespace {

Error diverged(const char* what, std::uint64_t step, Round round) {
  return rejected("diverged", std::string(what) + " is not finite after step " +
                                  std::to_string(step) + " of round " + std::to_string(round) +
                                  "; lower the learning rate or set clip-norm");
}

Error stopped(Round round) {
  return retry("stopped", "training was stopped in round " + std::to_string(round));
}

Error loss_not_finite() {
  return rejected("diverged", "the loss of a model is not finite; lower the learning rate");
}

std::vector<std::uint32_t> rows_of(const data::DatasetView& view) {
  if (view.rows) return *view.rows;
  std::vector<std::uint32_t> all(view.size());
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

}  // namespace

std::uint64_t local_steps(const TrainOptions& options, std::size_t rows) {
  if (options.local_steps > 0) return static_cast<std::uint64_t>(options.local_steps);
  const auto batch_rows = static_cast<std::size_t>(options.batch_size);
  const std::size_t batches = (rows + batch_rows - 1) / batch_rows;
  return static_cast<std::uint64_t>(options.local_epochs) * batches;
}

LocalTrainer::LocalTrainer(std::shared_ptr<const model::Model> model, TrainOptions options)
    : options_(std::move(options)), stepper_(std::move(model), options_) {}

Result<TrainResult> LocalTrainer::train(std::span<float> parameters, const data::DatasetView& view,
                                        Round round, Round rounds, Rng rng,
                                        const std::atomic<bool>& stop,
                                        const TrainingHooks<float>& hooks) {
  const model::Model& model = stepper_.model();
  STARLING_CHECK(parameters.size() == model.layout()->size());
  STARLING_TRY(check_data(model, view));
  const auto batch_rows = std::min(static_cast<std::size_t>(options_.batch_size), view.size());
  stepper_.begin(batch_rows, static_cast<bool>(hooks.correct));
  if (hooks.optimizer != nullptr) STARLING_TRY(stepper_.optimizer().load(*hooks.optimizer));
  const auto last = options_.local_steps > 0 ? data::LastBatch::kWrap : data::LastBatch::kKeep;
  data::BatchSampler sampler(view, batch_rows, rng, last);
  const double rate = learning_rate_at(options_, round, rounds);
  const std::uint64_t steps = local_steps(options_, view.size());
  TrainResult result{.rate = rate};
  double loss_sum = 0;
  while (result.steps < steps) {
    if (stop.load(std::memory_order_relaxed)) return stopped(round);
    const auto rows = sampler.next();
    loss_sum += stepper_.step(parameters, *view.dataset, rows, rate, &stop, hooks.correct);
    result.samples += rows.size();
    ++result.steps;
    if (std::isfinite(loss_sum)) continue;
    if (stop.load(std::memory_order_relaxed)) return stopped(round);
    return diverged("the loss", result.steps, round);
  }
  if (!model.kernels().all_finite(parameters.data(), parameters.size())) {
    return diverged("a parameter", result.steps, round);
  }
  result.train_loss = loss_sum / static_cast<double>(result.samples);
  if (hooks.optimizer != nullptr) *hooks.optimizer = stepper_.optimizer().state();
  return result;
}

Result<double> LocalTrainer::full_gradient(std::span<const float> parameters,
                                           const data::DatasetView& view, std::span<float> gradient,
                                           const std::atomic<bool>& stop) {
  const model::Model& model = stepper_.model();
  STARLING_CHECK(parameters.size() == model.layout()->size());
  STARLING_CHECK(gradient.size() == parameters.size());
  STARLING_TRY(check_data(model, view));
  stepper_.begin(std::min(view.size(), model.rows_max()));
  const std::vector<std::uint32_t> rows = rows_of(view);
  const double loss_sum = stepper_.gradient(parameters, *view.dataset, rows, gradient, &stop);
  if (stop.load(std::memory_order_relaxed)) {
    return retry("stopped", "training was stopped while it computed the gradient over all rows");
  }
  if (!std::isfinite(loss_sum)) return loss_not_finite();
  return loss_sum / static_cast<double>(rows.size());
}

Result<double> LocalTrainer::loss(std::span<const float> parameters, const data::DatasetView& view,
                                  const std::atomic<bool>* stop) const {
  STARLING_ASSIGN(const Evaluation evaluation,
                  evaluate(stepper_.model(), parameters, view, nullptr, stop));
  if (!std::isfinite(evaluation.loss)) return loss_not_finite();
  return evaluation.loss;
}

}  // namespace starling::train
