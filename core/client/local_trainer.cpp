// SPDX-License-Identifier: Apache-2.0
#include "core/client/local_trainer.h"

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/linalg/aligned.h"

namespace starling::client {
namespace {

std::span<const float> floats(const SharedBytes& bytes) {
  return {reinterpret_cast<const float*>(bytes.view().data()), bytes.size() / sizeof(float)};
}

Result<void> check_input(std::string_view name, const SharedBytes& bytes,
                         const Sha256Digest& expected, std::size_t size, bool verify) {
  if (bytes.size() != size) {
    return unsupported("wrong-vectors", fmt::format("'{}' has {} bytes; the model has {}", name,
                                                    bytes.size(), size));
  }
  if (verify && sha256(bytes.view()) != expected) {
    return retry("model-damaged",
                 fmt::format("the {} that arrived has another SHA-256 than its task names", name));
  }
  return {};
}

Result<void> check_inputs(const Train& task, bool verify) {
  const std::size_t size = task.base.size();
  STARLING_TRY(check_input("model", task.base, task.plan.base.sha256, size, verify));
  STARLING_CHECK(task.inputs.size() == task.plan.inputs.size());
  for (std::size_t i = 0; i < task.inputs.size(); ++i) {
    const protocol::TaskInput& input = task.plan.inputs[i];
    STARLING_TRY(check_input(input.name, task.inputs[i], input.sha256, size, verify));
  }
  return {};
}

TrainingRequest request_of(const protocol::RoundPlan& plan) {
  return {.settings = plan.settings, .seed = plan.seed, .round = plan.round, .rounds = plan.rounds};
}

// The rows of this client as a strategy sees them; notes what the training reported.
class Rows final : public strategy::LocalTraining<float> {
 public:
  Rows(Trainer& trainer, const TrainingRequest& request, const std::atomic<bool>& stop)
      : trainer_(trainer), request_(request), stop_(stop) {}

  Result<strategy::LocalWork> train(std::span<float> y,
                                    const train::TrainingHooks<float>& hooks) override {
    STARLING_ASSIGN(report_, trainer_.train(request_, y, hooks, stop_));
    return strategy::LocalWork{report_.steps, report_.rate, report_.train_loss};
  }
  Result<double> full_gradient(std::span<const float> x, std::span<float> gradient) override {
    return trainer_.full_gradient(request_, x, gradient, stop_);
  }
  Result<double> loss(std::span<const float> x) override {
    return trainer_.loss(request_, x, stop_);
  }
  double weight() const { return report_.weight; }
  const train::Metrics& metrics() const { return report_.metrics; }

 private:
  Trainer& trainer_;
  const TrainingRequest& request_;
  const std::atomic<bool>& stop_;
  TrainingReport report_;
};

using Scalars = std::map<std::string, double>;

void add_metrics(const train::Metrics& metrics, Scalars& scalars) {
  for (const auto& [name, value] : metrics) {
    scalars[std::string(update::kMetricPrefix) + name] = value;
  }
}

PendingUpdate pack(const protocol::RoundPlan& plan, double weight, Scalars scalars,
                   std::vector<update::VectorSpec> vectors, SharedBytes payload) {
  update::ContributionHead head{.task = plan.task,
                                .base = plan.base,
                                .weight = weight,
                                .vectors = std::move(vectors),
                                .scalars = std::move(scalars),
                                .payload_bytes = payload.size(),
                                .payload_checksum = checksum(payload.view())};
  return {std::move(head), std::move(payload)};
}

Result<PendingUpdate> evaluate(const Train& task, Trainer& trainer, const std::atomic<bool>& stop) {
  STARLING_ASSIGN(const train::Evaluation found,
                  trainer.evaluate(request_of(task.plan), floats(task.base), stop));
  Scalars scalars = {{"loss", found.loss}};
  if (found.accuracy) scalars["accuracy"] = *found.accuracy;
  add_metrics(found.metrics, scalars);
  return pack(task.plan, static_cast<double>(found.samples), std::move(scalars),
              task.plan.schema.vectors, {});
}

struct PlannedStrategy {
  std::string name;
  std::unique_ptr<strategy::ClientStrategy<float>> half;
};

Result<PlannedStrategy> make_strategy(const protocol::RoundPlan& plan,
                                      const strategy::Catalogue& strategies) {
  strategy::StrategyOptions options;
  STARLING_TRY(from_settings("strategy", plan.settings, options));
  train::TrainOptions training;
  STARLING_TRY(from_settings("train", plan.settings, training));
  STARLING_ASSIGN(auto half, strategies.make_client(options, training));
  return PlannedStrategy{options.name, std::move(half)};
}

Result<PendingUpdate> train(const Train& task, Trainer& trainer, const UpdateOptions& own,
                            const std::atomic<bool>& stop) {
  const protocol::RoundPlan& plan = task.plan;
  STARLING_TRY(check_memory(plan, task.other_states_bytes, own));
  STARLING_ASSIGN(const PlannedStrategy planned, make_strategy(plan, *own.strategies));
  const auto& strategy = planned.half;
  if (task.state_lost && strategy->state_vectors() > 0) {
    return retry(std::string(kStateLost),
                 fmt::format("what '{}' kept on this device of its last update that counted is "
                             "lost; its next task of this run begins as its first one",
                             planned.name));
  }
  static const strategy::State<float> kNone;
  strategy::ClientRound<float> round{
      .model = floats(task.base), .inputs = {}, .state = task.state ? *task.state : kNone};
  for (std::size_t i = 0; i < task.inputs.size(); ++i) {
    round.inputs.emplace(plan.inputs[i].name, floats(task.inputs[i]));
  }
  const TrainingRequest request = request_of(plan);
  Rows rows(trainer, request, stop);
  STARLING_ASSIGN(strategy::ClientResult<float> result, strategy->round(round, rows));
  if (result.payload.size() * sizeof(float) != update::payload_bytes_max(plan.schema.vectors)) {
    return unsupported("wrong-vectors", "the task asks for vectors that this client cannot make");
  }
  Scalars scalars = std::move(result.scalars);
  scalars["train_loss"] = result.work.train_loss;
  add_metrics(rows.metrics(), scalars);
  std::vector<update::VectorSpec> vectors = update::encode(result.payload, plan.schema.vectors);
  const auto bytes = static_cast<std::size_t>(update::payload_bytes(vectors));
  const auto owner =
      std::make_shared<const linalg::AlignedVector<float>>(std::move(result.payload));
  PendingUpdate update =
      pack(plan, rows.weight(), std::move(scalars), std::move(vectors),
           SharedBytes(owner, as_bytes(std::span<const float>(*owner)).first(bytes)));
  if (strategy->state_vectors() > 0) {
    update.state = std::make_shared<const strategy::State<float>>(std::move(result.state));
  }
  return update;
}

}  // namespace

// The run's state is there three times: as it is, as it was before its last commit, and as the
// update at work leaves it; no other pending update of the run has one meanwhile.
Result<void> check_memory(const protocol::RoundPlan& plan, std::uint64_t other_states_bytes,
                          const UpdateOptions& options) {
  if (plan.kind != protocol::TaskKind::kTrain) return {};
  STARLING_ASSIGN(const PlannedStrategy strategy, make_strategy(plan, *options.strategies));
  const std::uint64_t vectors =
      kModelsWhileTraining + plan.inputs.size() + 3 * strategy.half->state_vectors();
  const std::uint64_t alone =
      vectors * plan.model_bytes +
      options.pending_updates * update::payload_bytes_max(plan.schema.vectors);
  const std::uint64_t needed = alone + other_states_bytes;
  if (needed <= options.memory_bytes_max) return {};
  const std::string message = fmt::format(
      "to train a model of {} with the strategy '{}' takes up to {}, with {} waiting "
      "and {} held for other runs; the memory allowed here beside the data is {}",
      format_byte_count(plan.model_bytes), strategy.name, format_byte_count(needed),
      counted(options.pending_updates, "update"), format_byte_count(other_states_bytes),
      format_byte_count(options.memory_bytes_max));
  if (alone <= options.memory_bytes_max) return overloaded(std::string(kMemoryInUse), message);
  return unsupported("model-too-large", message);
}

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
  names_ = parsed.data.names();
  trainer_ = std::make_unique<train::LocalTrainer>(std::move(model), parsed.train);
  settings_ = std::move(settings);
  return {};
}

Result<TrainingReport> BuiltinTrainer::train(const TrainingRequest& request,
                                             std::span<float> parameters,
                                             const train::TrainingHooks<float>& hooks,
                                             const std::atomic<bool>& stop) {
  STARLING_ASSIGN(train::LocalTrainer * trainer, cache_.trainer_for(request, parameters.size()));
  STARLING_ASSIGN(const ClientData data, data_->named(cache_.names()));
  // Not keyed by the attempt: a later attempt of the round can use the same update.
  const Rng rng({.seed = request.seed,
                 .purpose = Purpose::kBatches,
                 .node = hash_name(client_),
                 .round = request.round});
  STARLING_ASSIGN(
      const train::TrainResult result,
      trainer->train(parameters, data.training, request.round, request.rounds, rng, stop, hooks));
  return TrainingReport{.weight = static_cast<double>(data.training.size()),
                        .train_loss = result.train_loss,
                        .steps = result.steps,
                        .rate = result.rate};
}

Result<double> BuiltinTrainer::full_gradient(const TrainingRequest& request,
                                             std::span<const float> parameters,
                                             std::span<float> gradient,
                                             const std::atomic<bool>& stop) {
  STARLING_ASSIGN(train::LocalTrainer * trainer, cache_.trainer_for(request, parameters.size()));
  STARLING_ASSIGN(const ClientData data, data_->named(cache_.names()));
  return trainer->full_gradient(parameters, data.training, gradient, stop);
}

Result<double> BuiltinTrainer::loss(const TrainingRequest& request,
                                    std::span<const float> parameters,
                                    const std::atomic<bool>& stop) {
  STARLING_ASSIGN(train::LocalTrainer * trainer, cache_.trainer_for(request, parameters.size()));
  STARLING_ASSIGN(const ClientData data, data_->named(cache_.names()));
  return trainer->loss(parameters, data.training, &stop);
}

Result<train::Evaluation> BuiltinTrainer::evaluate(const TrainingRequest& request,
                                                   std::span<const float> parameters,
                                                   const std::atomic<bool>& stop) {
  STARLING_ASSIGN(train::LocalTrainer * trainer, cache_.trainer_for(request, parameters.size()));
  STARLING_ASSIGN(const ClientData data, data_->named(cache_.names()));
  if (!data.held_out) return Trainer::evaluate(request, parameters, stop);
  return train::evaluate(trainer->model(), parameters, *data.held_out, nullptr, &stop);
}

Result<PendingUpdate> make_update(const Train& task, Trainer& trainer, const UpdateOptions& options,
                                  const std::atomic<bool>& stop) {
  STARLING_TRY(check_inputs(task, options.verify_inputs));
  if (task.plan.kind == protocol::TaskKind::kEvaluate) return evaluate(task, trainer, stop);
  return train(task, trainer, options, stop);
}

}  // namespace starling::client
