// SPDX-License-Identifier: Apache-2.0
#include "core/client/process_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "core/client/checked_trainer.h"
#include "core/linalg/kernels.h"
#include "core/train/clip_gradient.h"
#include "core/train/local_trainer.h"
#include "core/train/optimizer.h"

namespace starling::client {
namespace {

constexpr int kSeedBitsDropped = 11;  // below 2^53: JSON readers hold it exactly

// The options as JSON, with the rate of the round.
std::string train_object(train::TrainOptions options, double rate) {
  options.learning_rate = rate;
  std::string object;
  for (const Field& field : fields_of("", options)) {
    const std::string text = field.text();
    const bool bare = field.type == FieldType::kInteger || field.type == FieldType::kNumber ||
                      field.type == FieldType::kBoolean;
    object += fmt::format("{}\"{}\": {}", object.empty() ? "" : ", ", field.key,
                          bare ? text : boost::json::serialize(boost::json::string(text)));
  }
  return "{" + object + "}";
}

// The parts of the vector that no optimizer changes.
class Buffers {
 public:
  explicit Buffers(const model::Layout& layout) {
    for (const model::TensorInfo& tensor : layout.tensors()) {
      if (tensor.role == model::Role::kBuffer) parts_.push_back({tensor.offset, tensor.size()});
    }
  }
  void clear(std::span<float> gradient) const {
    for (const Part& part : parts_) {
      std::ranges::fill(gradient.subspan(part.offset, part.size), 0.0F);
    }
  }
  void copy(std::span<const float> from, std::span<float> to) const {
    for (const Part& part : parts_) {
      std::ranges::copy(from.subspan(part.offset, part.size), to.begin() + part.offset);
    }
  }
  bool empty() const { return parts_.empty(); }

 private:
  struct Part {
    std::size_t offset, size;
  };
  std::vector<Part> parts_;
};

Error steps_diverged(const char* what, std::uint64_t step, std::uint32_t round) {
  return rejected("diverged", fmt::format("{} is not finite after step {} of round {}; lower the "
                                          "learning rate or set clip-norm",
                                          what, step, round));
}

}  // namespace

Result<ProcessTrainer::Prepared> ProcessTrainer::prepare(const TrainingRequest& request,
                                                         std::size_t size,
                                                         const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const TrainingSettings settings,
                  TrainingSettings::parse({request.settings.begin(), request.settings.end()}));
  Prepared prepared{.options = settings.train,
                    .rate = train::learning_rate_at(settings.train, request.round, request.rounds)};
  // Not keyed by the attempt: a later attempt of the round can use the same update.
  Rng rng({.seed = request.seed,
           .purpose = Purpose::kBatches,
           .node = hash_name(client_),
           .round = request.round});
  prepared.task = {.client = client_,
                   .round = request.round,
                   .rounds = request.rounds,
                   .seed = rng.next_u64() >> kSeedBitsDropped,
                   .train = train_object(prepared.options, prepared.rate)};
  if (!settings.trainer.settings.empty()) prepared.task.settings = settings.trainer.settings;
  STARLING_ASSIGN(const TrainerDescription* description,
                  host_.describe(prepared.task.settings, stop));
  STARLING_TRY(check_tensors(settings.model, size, *description));
  prepared.layout = description->layout;
  return prepared;
}

Result<void> ProcessTrainer::initialize(const TrainingRequest& request, std::span<float> result,
                                        const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const Prepared prepared, prepare(request, result.size(), stop));
  STARLING_TRY(host_.run(TrainerOperation::kInitialize, prepared.task,
                         {.parameters = {}, .result = result}, stop));
  return {};
}

Result<std::uint64_t> ProcessTrainer::rows_of(const Prepared& prepared,
                                              const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const TrainerDescription* description,
                  host_.describe(prepared.task.settings, stop, client_));
  if (description->rows > 0) return description->rows;
  return unsupported("rows-unknown",
                     fmt::format("{} does not say how many rows {} has, and this run's strategy "
                                 "counts its steps by them; let its 'describe' answer 'rows'",
                                 description->name, client_));
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
                        .rate = prepared.rate};
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
  const Buffers buffers(*prepared.layout);
  linalg::AlignedVector<float> kept;
  if (!buffers.empty()) kept.assign(parameters.begin(), parameters.end());
  linalg::AlignedVector<float> gradient(parameters.size());
  const std::uint64_t steps = train::local_steps(prepared.options, rows);
  const std::uint32_t round = prepared.task.round;
  TrainingReport report{.weight = static_cast<double>(rows), .rate = prepared.rate};
  double loss_sum = 0, samples = 0;
  while (report.steps < steps) {
    STARLING_ASSIGN(const TrainerAnswer answer,
                    host_.run(TrainerOperation::kGradient, prepared.task, {parameters, gradient},
                              stop, report.steps));
    loss_sum += answer.loss * answer.weight;
    samples += answer.weight;
    ++report.steps;
    buffers.copy(gradient, kept);
    buffers.clear(gradient);
    if (hooks.correct) hooks.correct(parameters, gradient);
    buffers.clear(gradient);
    if (!std::isfinite(loss_sum) ||
        !train::clip_gradient(gradient, prepared.options.clip_norm, kernels)) {
      return steps_diverged("the loss", report.steps, round);
    }
    optimizer.step(parameters, gradient, prepared.rate);
    buffers.copy(kept, parameters);  // whatever the optimizer made of them
  }
  if (!kernels.all_finite(parameters.data(), parameters.size())) {
    return steps_diverged("a parameter", report.steps, round);
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
  STARLING_ASSIGN(const TrainerAnswer answer, host_.run(TrainerOperation::kGradient, prepared.task,
                                                        {parameters, gradient}, stop));
  if (prepared.options.weight_decay > 0) {
    linalg::default_kernels().accumulate(gradient.data(), 1, parameters.data(),
                                         static_cast<float>(prepared.options.weight_decay),
                                         gradient.size());
  }
  Buffers(*prepared.layout).clear(gradient);
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
