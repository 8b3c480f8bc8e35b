// SPDX-License-Identifier: Apache-2.0
#include "core/client/trainer_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "core/linalg/kernels.h"
#include "core/train/clip_gradient.h"

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

}  // namespace

std::uint64_t task_seed(const TaskPlace& place) {
  // Not keyed by the attempt: a later attempt of the round can use the same update.
  Rng rng({.seed = place.seed,
           .purpose = Purpose::kBatches,
           .node = hash_name(place.client),
           .round = place.round});
  return rng.next_u64() >> kSeedBitsDropped;
}

TrainerTask make_task(const TaskPlace& place, train::TrainOptions options, double rate,
                      const TrainerSettings& settings) {
  return {.client = place.client,
          .round = place.round,
          .rounds = place.rounds,
          .seed = task_seed(place),
          .train = train_object(std::move(options), rate),
          .settings = settings.object()};
}

TrainerSteps::TrainerSteps(const model::Layout& layout, const train::TrainOptions& options)
    : options_(options) {
  for (const model::TensorInfo& tensor : layout.tensors()) {
    if (tensor.role == model::Role::kBuffer) buffers_.push_back({tensor.offset, tensor.size()});
  }
}

void TrainerSteps::clear_buffers(std::span<float> gradient) const {
  for (const Part& part : buffers_) {
    std::ranges::fill(gradient.subspan(part.offset, part.size), 0.0F);
  }
}

Result<TrainerAnswer> TrainerSteps::step(TrainerHost& host, const Batch& batch, std::span<float> x,
                                         train::Optimizer& optimizer,
                                         const train::Correction<float>& correct,
                                         const std::atomic<bool>& stop) {
  gradient_.resize(x.size());
  if (!buffers_.empty()) kept_.resize(x.size());
  const std::span<float> gradient = gradient_;
  STARLING_ASSIGN(TrainerAnswer answer, host.run(TrainerOperation::kGradient, batch.task,
                                                 {x, gradient}, stop, batch.number));
  for (const Part& part : buffers_) {
    std::ranges::copy(gradient.subspan(part.offset, part.size), kept_.begin() + part.offset);
  }
  clear_buffers(gradient);
  if (correct) correct(x, gradient);
  clear_buffers(gradient);
  if (!std::isfinite(answer.loss) ||
      !train::clip_gradient(gradient, options_.clip_norm, linalg::default_kernels())) {
    return rejected("diverged", fmt::format("the loss is not finite after step {} of round {}; "
                                            "lower the learning rate or set clip-norm",
                                            batch.number + 1, batch.task.round));
  }
  optimizer.step(x, gradient, batch.rate);
  for (const Part& part : buffers_) {  // whatever the optimizer made of them
    std::ranges::copy(std::span(kept_).subspan(part.offset, part.size), x.begin() + part.offset);
  }
  return answer;
}

Result<TrainerAnswer> TrainerSteps::gradient(TrainerHost& host, const TrainerTask& task,
                                             std::optional<std::uint64_t> number,
                                             std::span<const float> x, std::span<float> result,
                                             const std::atomic<bool>& stop) const {
  STARLING_ASSIGN(TrainerAnswer answer,
                  host.run(TrainerOperation::kGradient, task, {x, result}, stop, number));
  if (options_.weight_decay > 0) {
    linalg::default_kernels().accumulate(result.data(), 1, x.data(),
                                         static_cast<float>(options_.weight_decay), result.size());
  }
  clear_buffers(result);
  return answer;
}

}  // namespace starling::client
