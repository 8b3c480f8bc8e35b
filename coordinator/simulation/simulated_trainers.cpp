// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulated_trainers.h"

#include <fmt/format.h>

#include "coordinator/rounds/model_evaluator.h"
#include "core/base/nearest_name.h"
#include "core/client/abilities.h"
#include "core/client/process_trainer.h"

namespace starling::coordinator {
namespace {

const std::atomic<bool> kNeverStops = false;
const std::string kFirstClient = "client-1";  // every simulation has it

Error cannot_do_strategy(const client::TrainerDescription& trainer, const std::string& strategy,
                         const strategy::Catalogue& strategies) {
  const std::vector<std::string> names = strategies.names_for_plain_clients();
  const std::vector<std::string_view> others(names.begin(), names.end());
  return wrong_setting("setting-invalid",
                       fmt::format("strategy.name = \"{}\" needs the operation 'gradient', which "
                                   "{} does not offer: implement it, or choose {}",
                                   strategy, trainer.name, join_names(others, "or")));
}

}  // namespace

Result<std::unique_ptr<SimulatedTrainers>> SimulatedTrainers::start(
    const Job& job, const strategy::Catalogue& strategies, const client::TrainerOptions& options,
    unsigned workers, Log& log) {
  STARLING_ASSIGN(auto processes,
                  client::TrainerWorkers::make(options, kFirstClient, workers, log));
  std::unique_ptr<SimulatedTrainers> made(new SimulatedTrainers(job, std::move(processes)));
  STARLING_ASSIGN(const client::TrainerDescription found,
                  made->workers_[0].describe(made->settings_, kNeverStops));
  if (job.evaluate.by_trainer() && !found.can(client::TrainerOperation::kEvaluate)) {
    return client::cannot_do(found, client::TrainerOperation::kEvaluate);
  }
  const std::string strategy = strategies.for_clients(job.training.strategy).name;
  if (strategy != "fedavg" && !found.can(client::TrainerOperation::kGradient)) {
    return cannot_do_strategy(found, job.training.strategy.name, strategies);
  }
  made->abilities_ = client::abilities_of(strategies, found);
  made->keeps_private_tensors_ = !found.private_tensors.empty();
  return made;
}

SimulatedTrainers::SimulatedTrainers(const Job& job, client::TrainerWorkers workers)
    : settings_(job.training.trainer.object()), workers_(std::move(workers)) {}

FederationSimulator::Options::Trainers SimulatedTrainers::trainers() {
  return {.make =
              [this](const std::string& client, unsigned worker) {
                return std::make_unique<client::ProcessTrainer>(client, workers_[worker]);
              },
          .abilities = abilities_};
}

Result<ExternalOrigin> SimulatedTrainers::initial_model(const Job& job) {
  if (!job.training.model.initial.empty()) return ExternalOrigin();
  STARLING_ASSIGN(model::Snapshot made, initialize_by(workers_[0], kFirstClient, job, kNeverStops));
  return ExternalOrigin{.model = std::move(made), .initial_sha256 = std::nullopt};
}

}  // namespace starling::coordinator
