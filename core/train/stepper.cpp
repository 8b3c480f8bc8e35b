// SPDX-License-Identifier: Apache-2.0
#include "core/train/stepper.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/train/clip_gradient.h"

namespace starling::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Stepper::Stepper(std::shared_ptr<const model::Model> model, const TrainOptions& options)
    : model_(std::move(model)),
      options_(options),
      optimizer_(options, model_->layout()->size(), model_->kernels()) {
  STARLING_CHECK(validate(options));
}

void Stepper::begin(std::size_t batch_rows, bool with_correction) {
  STARLING_CHECK(batch_rows > 0);
  const std::size_t rows = std::min(batch_rows, model_->rows_max());
  if (rows > pass_rows_) {
    workspace_ = model_->make_workspace(rows);
    block_.reserve(rows, model_->input().features());
    pass_rows_ = rows;
  }
  const bool all_fused = optimizer_.is_plain_sgd() && options_.clip_norm == 0 && !with_correction &&
                         batch_rows <= pass_rows_;
  if (!all_fused) gradient_.resize(model_->layout()->size());
  optimizer_.reset();
}

// A batch that the model takes at once is one pass, also where there is room for fewer passes from
// an earlier begin(): how a step is computed depends on its own rows alone.
double Stepper::step_with(Optimizer& optimizer, std::span<float> parameters,
                          const data::Dataset& dataset, std::span<const std::uint32_t> rows,
                          double rate, const std::atomic<bool>* stop,
                          const Correction<float>& correct) {
  const bool one_pass = rows.size() <= pass_rows_;
  if (one_pass && optimizer_.is_plain_sgd() && options_.clip_norm == 0 && !correct) {
    return fused_step(parameters, dataset, rows, rate);
  }
  const double loss_sum = sum_gradient(parameters, dataset, rows, gradient_, stop);
  if (!std::isfinite(loss_sum)) return kNan;
  if (correct) correct(parameters, gradient_);
  if (!clip_gradient(gradient_, options_.clip_norm, model_->kernels())) return kNan;
  optimizer.step(parameters, gradient_, rate);
  return loss_sum;
}

double Stepper::step(std::span<float> parameters, const data::Dataset& dataset,
                     std::span<const std::uint32_t> rows, double rate,
                     const std::atomic<bool>* stop, const Correction<float>& correct) {
  return step_with(optimizer_, parameters, dataset, rows, rate, stop, correct);
}

double Stepper::step(std::span<float> parameters, const data::Dataset& dataset,
                     std::span<const std::uint32_t> rows, double rate, Optimizer& optimizer) {
  return step_with(optimizer, parameters, dataset, rows, rate, nullptr, {});
}

double Stepper::gradient(std::span<const float> parameters, const data::Dataset& dataset,
                         std::span<const std::uint32_t> rows, std::span<float> gradient,
                         const std::atomic<bool>* stop) {
  const double loss_sum = sum_gradient(parameters, dataset, rows, gradient, stop);
  if (options_.weight_decay > 0) {
    model_->kernels().accumulate(gradient.data(), 1, parameters.data(),
                                 static_cast<float>(options_.weight_decay), gradient.size());
  }
  return loss_sum;
}

// The model applies the gradient while it computes it.
double Stepper::fused_step(std::span<float> parameters, const data::Dataset& dataset,
                           std::span<const std::uint32_t> rows, double rate) {
  const model::GradientSink sink = {
      parameters, static_cast<float>(1 - rate * options_.weight_decay), static_cast<float>(-rate)};
  const auto divisor = static_cast<double>(rows.size());
  return model_->gradient(parameters, block_.gather(dataset, rows), divisor, sink, *workspace_)
      .loss_sum;
}

double Stepper::sum_gradient(std::span<const float> parameters, const data::Dataset& dataset,
                             std::span<const std::uint32_t> rows, std::span<float> gradient,
                             const std::atomic<bool>* stop) {
  const auto divisor = static_cast<double>(rows.size());
  double loss_sum = 0;
  model::GradientSink sink = {gradient, 0, 1};
  for (std::size_t begin = 0; begin < rows.size(); begin += pass_rows_) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) return kNan;
    const auto part = rows.subspan(begin, std::min(pass_rows_, rows.size() - begin));
    const model::Batch batch = block_.gather(dataset, part);
    loss_sum += model_->gradient(parameters, batch, divisor, sink, *workspace_).loss_sum;
    sink.keep = 1;
  }
  return loss_sum;
}

}  // namespace starling::train
