// SPDX-License-Identifier: Apache-2.0
#include "core/client/checked_trainer.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <new>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/client/training_settings.h"
#include "core/linalg/kernels.h"
#include "core/model/external_model.h"
#include "core/update/contribution.h"

namespace starling::client {
namespace {

Error trainer_failed(const TrainerDescription& description, std::string_view how) {
  return rejected("trainer-failed", fmt::format("{} {}", description.name, how));
}

// Memory that is short is the device's to name.
template <class Call>
auto call_trainer(const TrainerDescription& description, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& thrown) {
    return trainer_failed(description,
                          fmt::format("threw an exception: {}", printable(thrown.what())));
  } catch (const abi::__forced_unwind&) {  // of a thread that is cancelled
    throw;
  } catch (...) {
    return trainer_failed(description, "threw something that is no std::exception");
  }
}

}  // namespace

Result<model::Parameters> room_for(const TrainerDescription& description) {
  try {
    return model::Parameters(description.layout);
  } catch (const std::bad_alloc&) {
    return unsupported("out-of-memory",
                       fmt::format("there is not enough memory for the model of {}, {}",
                                   description.name, counted(description.layout->size(), "value")));
  }
}

Result<void> check_tensors(const model::ModelSpec& spec, std::size_t size,
                           const TrainerDescription& description) {
  const model::Layout& layout = *description.layout;
  if (!spec.is_external()) {
    return unsupported("tensors-differ",
                       fmt::format("this run trains a built-in model ({}), and {} one of its own; "
                                   "submit the run with model.kind = \"external\", or let this "
                                   "device train on [data] in place of its trainer",
                                   spec.kind, description.name));
  }
  const std::string ours = fmt::format("{} of {}", counted(layout.tensors().size(), "tensor"),
                                       counted(layout.size(), "value"));
  if (layout.size() != size) {
    return unsupported("tensors-differ",
                       fmt::format("the run's model has {}, and {} has {}; train the same model "
                                   "on all clients",
                                   counted(size, "value"), description.name, ours));
  }
  if (spec.layout.empty() || spec.layout == model::digest_of(layout).hex()) return {};
  return unsupported(
      "tensors-differ",
      fmt::format("the run's model has as many values as {} ({}), but other names, "
                  "shapes, roles or rules of its tensors; train the same model on all "
                  "clients",
                  description.name, ours));
}

CheckedTrainer::CheckedTrainer(Trainer& trainer, TrainerDescription description)
    : trainer_(trainer), description_(std::move(description)) {
  STARLING_CHECK(description_.layout != nullptr);
}

Result<void> CheckedTrainer::check(const TrainingRequest& request, std::size_t size,
                                   TrainerOperation operation) const {
  STARLING_ASSIGN(const TrainingSettings settings,
                  TrainingSettings::parse({request.settings.begin(), request.settings.end()}));
  STARLING_TRY(check_tensors(settings.model, size, description_));
  if (!description_.can(operation)) return cannot_do(description_, operation);
  return {};
}

Result<void> CheckedTrainer::check_finite(double number, std::span<const float> result) const {
  if (std::isfinite(number) && linalg::default_kernels().all_finite(result.data(), result.size())) {
    return {};
  }
  return rejected("diverged", fmt::format("a number or value that {} gave back is not finite; "
                                          "lower the learning rate or set clip-norm",
                                          description_.name));
}

Result<void> CheckedTrainer::check_metrics(const train::Metrics& metrics,
                                           TrainerOperation operation) const {
  const bool trains = operation == TrainerOperation::kFit;
  if (metrics.size() > train::kMetricsMax) {
    return trainer_failed(description_, fmt::format("answered {} metrics; at most {} are taken",
                                                    metrics.size(), train::kMetricsMax));
  }
  for (const auto& [name, value] : metrics) {
    STARLING_TRY(check_finite(value));
    if (trains ? train::is_train_metric_name(name) : train::is_metric_name(name)) continue;
    return trainer_failed(
        description_,
        fmt::format("answered a metric that is called '{}'; names are 1 to {} of a-z, A-Z, 0-9 and "
                    "._-/@%, and not {}",
                    printable(name), train::kMetricNameBytesMax,
                    trains ? "'loss'" : "'loss' or 'accuracy'"));
  }
  return {};
}

Result<TrainingReport> CheckedTrainer::train(const TrainingRequest& request,
                                             std::span<float> parameters,
                                             const train::TrainingHooks<float>& hooks,
                                             const std::atomic<bool>& stop) {
  const bool by_gradients = hooks.correct || hooks.optimizer != nullptr;
  STARLING_TRY(check(request, parameters.size(),
                     by_gradients ? TrainerOperation::kGradient : TrainerOperation::kFit));
  STARLING_ASSIGN(TrainingReport report, call_trainer(description_, [&] {
                    return trainer_.train(request, parameters, hooks, stop);
                  }));
  STARLING_TRY(check_finite(report.weight + report.train_loss, parameters));
  STARLING_TRY(check_metrics(report.metrics, TrainerOperation::kFit));
  if (report.weight >= update::kWeightMin) return report;
  return trainer_failed(description_,
                        fmt::format("trained with weight {}; it must be at least {}, as the "
                                    "number of rows is",
                                    report.weight, update::kWeightMin));
}

Result<double> CheckedTrainer::full_gradient(const TrainingRequest& request,
                                             std::span<const float> parameters,
                                             std::span<float> gradient,
                                             const std::atomic<bool>& stop) {
  STARLING_TRY(check(request, parameters.size(), TrainerOperation::kGradient));
  STARLING_ASSIGN(const double loss, call_trainer(description_, [&] {
                    return trainer_.full_gradient(request, parameters, gradient, stop);
                  }));
  STARLING_TRY(check_finite(loss, gradient));
  return loss;
}

Result<double> CheckedTrainer::loss(const TrainingRequest& request,
                                    std::span<const float> parameters,
                                    const std::atomic<bool>& stop) {
  STARLING_TRY(check(request, parameters.size(), TrainerOperation::kGradient));
  STARLING_ASSIGN(const double loss, call_trainer(description_, [&] {
                    return trainer_.loss(request, parameters, stop);
                  }));
  STARLING_TRY(check_finite(loss));
  return loss;
}

Result<train::Evaluation> CheckedTrainer::evaluate(const TrainingRequest& request,
                                                   std::span<const float> parameters,
                                                   const std::atomic<bool>& stop) {
  STARLING_TRY(check(request, parameters.size(), TrainerOperation::kEvaluate));
  STARLING_ASSIGN(train::Evaluation found, call_trainer(description_, [&] {
                    return trainer_.evaluate(request, parameters, stop);
                  }));
  STARLING_TRY(check_finite(found.loss + found.accuracy.value_or(0)));
  if (found.samples == 0) return rejected("no-data", description_.name + " evaluated no rows");
  if (found.accuracy && (*found.accuracy < 0 || *found.accuracy > 1)) {
    return trainer_failed(description_, "answered an accuracy that is not from 0 to 1");
  }
  STARLING_TRY(check_metrics(found.metrics, TrainerOperation::kEvaluate));
  return found;
}

}  // namespace starling::client
