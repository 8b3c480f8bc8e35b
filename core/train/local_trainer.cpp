// SPDX-License-Identifier: Apache-2.0
#include "core/train/local_trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/data/batch_sampler.h"
#include "core/train/optimizer.h"
#include "core/train/row_block.h"

namespace starling::train {

struct LocalTrainer::Scratch {
  Scratch(std::shared_ptr<const model::Model> the_model, TrainOptions the_options)
      : model(std::move(the_model)),
        options(std::move(the_options)),
        optimizer(options, model->layout()->size(), model->kernels()) {}

  void prepare(std::size_t batch_rows);
  // The sum of the rows' losses; not finite where the step must not count.
  double step(std::span<float> parameters, const data::Dataset& dataset,
              std::span<const std::uint32_t> rows, double rate);

  std::shared_ptr<const model::Model> model;
  TrainOptions options;

 private:
  double fused_step(std::span<float> parameters, const data::Dataset& dataset,
                    std::span<const std::uint32_t> rows, double rate);
  double sum_gradient(std::span<const float> parameters, const data::Dataset& dataset,
                      std::span<const std::uint32_t> rows);
  bool clip();

  Optimizer optimizer;
  bool fused = false;         // the model itself applies the gradient
  std::size_t pass_rows = 0;  // of one call into the model
  std::unique_ptr<model::Workspace> workspace;
  RowBlock block;
  linalg::AlignedVector<float> gradient;  // unless fused
};

// Larger batches than the model takes at once are several passes; how many depends on the batch
// alone, whatever this trainer did before.
void LocalTrainer::Scratch::prepare(std::size_t batch_rows) {
  const std::size_t rows = std::min(batch_rows, model->rows_max());
  if (rows > pass_rows) {
    workspace = model->make_workspace(rows);
    block.reserve(rows, model->input().features());
    pass_rows = rows;
  }
  fused = optimizer.is_plain_sgd() && options.clip_norm == 0 && batch_rows <= pass_rows;
  if (!fused) gradient.resize(model->layout()->size());
  optimizer.reset();
}

double LocalTrainer::Scratch::step(std::span<float> parameters, const data::Dataset& dataset,
                                   std::span<const std::uint32_t> rows, double rate) {
  if (fused) return fused_step(parameters, dataset, rows, rate);
  const double loss_sum = sum_gradient(parameters, dataset, rows);
  if (!clip()) return std::numeric_limits<double>::quiet_NaN();
  optimizer.step(parameters, gradient, rate);
  return loss_sum;
}

double LocalTrainer::Scratch::fused_step(std::span<float> parameters, const data::Dataset& dataset,
                                         std::span<const std::uint32_t> rows, double rate) {
  const model::GradientSink sink = {parameters, static_cast<float>(1 - rate * options.weight_decay),
                                    static_cast<float>(-rate)};
  const auto divisor = static_cast<double>(rows.size());
  return model->gradient(parameters, block.gather(dataset, rows), divisor, sink, *workspace)
      .loss_sum;
}

double LocalTrainer::Scratch::sum_gradient(std::span<const float> parameters,
                                           const data::Dataset& dataset,
                                           std::span<const std::uint32_t> rows) {
  const auto divisor = static_cast<double>(rows.size());
  double loss_sum = 0;
  model::GradientSink sink = {gradient, 0, 1};
  for (std::size_t begin = 0; begin < rows.size(); begin += pass_rows) {
    const auto part = rows.subspan(begin, std::min(pass_rows, rows.size() - begin));
    const model::Batch batch = block.gather(dataset, part);
    loss_sum += model->gradient(parameters, batch, divisor, sink, *workspace).loss_sum;
    sink.keep = 1;
  }
  return loss_sum;
}

// As torch.nn.utils.clip_grad_norm_. False where the norm is not finite.
bool LocalTrainer::Scratch::clip() {
  if (options.clip_norm == 0) return true;
  const linalg::Kernels& kernels = model->kernels();
  const double norm = std::sqrt(kernels.squared_norm(gradient.data(), gradient.size()));
  if (!std::isfinite(norm)) return false;
  const double factor = options.clip_norm / (norm + 1e-6);
  if (factor < 1) kernels.scale(gradient.data(), gradient.size(), static_cast<float>(factor));
  return true;
}

namespace {

Error diverged(const char* what, std::uint64_t step, Round round) {
  return rejected("diverged", std::string(what) + " is not finite after step " +
                                  std::to_string(step) + " of round " + std::to_string(round) +
                                  "; lower the learning rate or set clip-norm");
}

std::uint64_t steps_of(const TrainOptions& options, std::size_t rows, std::size_t batch_rows) {
  if (options.local_steps > 0) return static_cast<std::uint64_t>(options.local_steps);
  const std::size_t batches = (rows + batch_rows - 1) / batch_rows;
  return static_cast<std::uint64_t>(options.local_epochs) * batches;
}

}  // namespace

LocalTrainer::LocalTrainer(std::shared_ptr<const model::Model> model, TrainOptions options)
    : scratch_(std::make_unique<Scratch>(std::move(model), std::move(options))) {
  STARLING_CHECK(validate(scratch_->options));
}

LocalTrainer::~LocalTrainer() = default;

Result<TrainResult> LocalTrainer::train(std::span<float> parameters, const data::DatasetView& view,
                                        Round round, Round rounds, Rng rng,
                                        const std::atomic<bool>& stop) {
  const model::Model& model = *scratch_->model;
  const TrainOptions& options = scratch_->options;
  STARLING_CHECK(parameters.size() == model.layout()->size());
  STARLING_TRY(check_data(model, view));
  const auto batch_rows = std::min(static_cast<std::size_t>(options.batch_size), view.size());
  scratch_->prepare(batch_rows);
  const auto last = options.local_steps > 0 ? data::LastBatch::kWrap : data::LastBatch::kKeep;
  data::BatchSampler sampler(view, batch_rows, rng, last);
  const double rate = learning_rate_at(options, round, rounds);
  const std::uint64_t steps = steps_of(options, view.size(), batch_rows);
  TrainResult result;
  double loss_sum = 0;
  while (result.steps < steps) {
    if (stop.load(std::memory_order_relaxed)) {
      return retry("stopped", "training was stopped in round " + std::to_string(round));
    }
    const auto rows = sampler.next();
    loss_sum += scratch_->step(parameters, *view.dataset, rows, rate);
    result.samples += rows.size();
    ++result.steps;
    if (!std::isfinite(loss_sum)) return diverged("the loss", result.steps, round);
  }
  if (!model.kernels().all_finite(parameters.data(), parameters.size())) {
    return diverged("a parameter", result.steps, round);
  }
  result.train_loss = loss_sum / static_cast<double>(result.samples);
  return result;
}

}  // namespace starling::train
