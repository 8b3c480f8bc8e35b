// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/network_trainers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "core/base/counted.h"
#include "core/client/checked_trainer.h"
#include "core/linalg/kernels.h"
#include "core/model/external_model.h"
#include "gossip/algorithms/make_algorithm.h"

namespace starling::gossip {

using client::TrainerDescription;
using client::TrainerOperation;

namespace {

// The name whose seed the initial model is made from, on every node.
constexpr std::string_view kEveryNode = "every node";

// The algorithms of which this is true.
template <class Condition>
std::string algorithms_where(const Condition& condition) {
  std::vector<std::string_view> names;
  for (const std::string_view name : kAlgorithms) {
    if (condition(traits({.name = std::string(name)}))) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

bool remembers(const train::TrainOptions& options) {
  return !train::Optimizer(options, 0, linalg::default_kernels()).is_plain_sgd();
}

// For what is no local phase, after `step` steps.
client::TrainerTask task_of(const NetOptions& options, std::string client, std::uint64_t step) {
  const auto round =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(step, 1, options.run.steps));
  const train::TrainOptions& train = options.train.train;
  const auto steps = static_cast<Round>(options.run.steps);
  return client::make_task({.client = std::move(client),
                            .seed = options.run.seed,
                            .round = round,
                            .rounds = static_cast<std::uint32_t>(options.run.steps)},
                           train, train::learning_rate_at(train, static_cast<Round>(round), steps),
                           options.trainer);
}

Result<model::Parameters> model_of_file(const NetOptions& options,
                                        const TrainerDescription& trainer) {
  SystemDisk disk;
  auto model = model::load_external_model(disk, options.model.initial);
  if (!model) return model.error().as(ErrorCategory::kUsage).within("model.initial");
  if (*model->layout() == *trainer.layout) return model;
  return wrong_setting(
      "tensors-differ",
      fmt::format("model.initial has {}, and {} has {}, or they differ in names, shapes or roles",
                  counted(model->size(), "value"), trainer.name,
                  counted(trainer.layout->size(), "value")));
}

}  // namespace

std::string node_name(Node node) { return fmt::format("node-{:04}", node + 1); }

Result<void> check_trainer(const NetOptions& options, const TrainerDescription& trainer) {
  STARLING_TRY(client::check_tensors(options.model, trainer.layout->size(), trainer));
  const AlgorithmTraits wanted = traits(options.algorithm);
  const auto& tensors = trainer.layout->tensors();
  const auto buffer = std::ranges::find(tensors, model::Role::kBuffer, &model::TensorInfo::role);
  if (buffer != tensors.end() && !wanted.plain_means) {
    return wrong_setting(
        "algorithm-trainer",
        fmt::format("{} would change the model's buffers, such as {}, as if they were trained; "
                    "use one of {}",
                    wanted.name, buffer->name,
                    algorithms_where([](const auto& t) { return t.plain_means; })));
  }
  if (trainer.can(TrainerOperation::kGradient)) return {};
  if (wanted.steps_itself) {
    return wrong_setting(
        "algorithm-trainer",
        fmt::format("{} takes gradients, and {} does not offer 'gradient'; use one of {}",
                    wanted.name, trainer.name,
                    algorithms_where([](const auto& t) { return !t.steps_itself; })));
  }
  if (remembers(options.train.train)) {
    return wrong_setting(
        "algorithm-trainer",
        fmt::format("an optimizer that goes on from one local phase to the next takes gradients, "
                    "and {} does not offer 'gradient'; set train.optimizer = \"sgd\" (what the "
                    "trainer uses itself starts again with each)",
                    trainer.name));
  }
  return {};
}

Result<model::Parameters> initial_model(const NetOptions& options, const std::string& client,
                                        client::TrainerHost& host, const std::atomic<bool>& stop) {
  const std::string settings = options.trainer.object();
  STARLING_ASSIGN(const TrainerDescription trainer, host.describe(settings, stop));
  if (!options.model.initial.empty()) return model_of_file(options, trainer);
  STARLING_ASSIGN(model::Parameters made, client::room_for(trainer));
  client::TrainerTask task = task_of(options, std::string(kEveryNode), 1);
  task.client = client;
  STARLING_TRY(host.run(TrainerOperation::kInitialize, task,
                        {.parameters = {}, .result = made.values()}, stop));
  return made;
}

ProcessTrainings::Options training_options(const NetOptions& options,
                                           std::shared_ptr<const model::Layout> layout) {
  return {.layout = std::move(layout),
          .train = options.train.train,
          .settings = options.trainer,
          .seed = options.run.seed,
          .steps = options.run.steps};
}

Result<std::shared_ptr<const NetworkTrainers>> NetworkTrainers::start(
    const NetOptions& options, const client::TrainerOptions& trainer, unsigned workers, Log& log) {
  STARLING_ASSIGN(auto processes,
                  client::TrainerWorkers::make(trainer, node_name(0), workers, log));
  std::shared_ptr<NetworkTrainers> made(new NetworkTrainers(trainer, std::move(processes), log));
  STARLING_ASSIGN(made->description_,
                  made->workers_[0].describe(options.trainer.object(), made->stop_));
  STARLING_TRY(check_trainer(options, made->description_));
  return made;
}

Result<model::Parameters> NetworkTrainers::initial(const NetOptions& options) const {
  return with_retries(retries(), node_name(0),
                      [&] { return initial_model(options, node_name(0), workers_[0], stop_); });
}

std::unique_ptr<NodeTrainings> NetworkTrainers::trainings(const NetOptions& options) const {
  std::vector<client::TrainerHost*> hosts;
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    hosts.push_back(&workers_[worker]);
  }
  std::vector<std::string> names;
  for (Node node = 0; node < options.topology.nodes; ++node) names.push_back(node_name(node));
  return std::make_unique<ProcessTrainings>(training_options(options, layout()), std::move(hosts),
                                            std::move(names), retries());
}

Retries NetworkTrainers::retries() const {
  return {.stop = stop_,
          .warn = [&log = log_](const std::string& line) { log.write(LogLevel::kWarning, line); }};
}

bool NetworkTrainers::can_evaluate() const { return description_.can(TrainerOperation::kEvaluate); }

std::optional<train::Evaluation> NetworkTrainers::evaluate(const NetOptions& options, Node node,
                                                           std::uint64_t step,
                                                           std::span<const float> model,
                                                           unsigned worker) const {
  const client::TrainerTask task = task_of(options, node_name(node), step);
  const auto answer = with_retries(retries(), node_name(node), [&] {
    return workers_[worker].run(TrainerOperation::kEvaluate, task,
                                {.parameters = model, .result = {}}, stop_);
  });
  if (answer) {
    return train::Evaluation{.loss = answer->loss,
                             .accuracy = answer->accuracy,
                             .samples = static_cast<std::uint64_t>(answer->weight),
                             .metrics = answer->metrics};
  }
  if (stop_) return std::nullopt;
  log_.warning("the model of {} is not evaluated: {}", node_name(node), answer.error().message());
  return std::nullopt;
}

}  // namespace starling::gossip
