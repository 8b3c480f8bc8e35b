// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "coordinator/rounds/run_json.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/simulation/simulated_run.h"
#include "coordinator/simulation/simulated_trainers.h"
#include "core/base/counted.h"
#include "core/base/durable_file.h"
#include "core/data/hold_out.h"
#include "core/data/load.h"
#include "core/data/partition.h"

namespace starling::coordinator {
namespace {

constexpr std::size_t kRunJsonBytesMax = std::size_t{1} << 30;

Result<void> check_says_data(const Job& job) {
  if (!job.data.dataset.empty()) return {};
  return wrong_setting(
      "no-data",
      "the job does not say what the simulated clients hold: set data.dataset, for "
      "example \"fashion-mnist:/usr/share/datasets/fashion-mnist\"");
}

Result<std::vector<data::DatasetView>> load_parts(const Job& job, std::size_t clients) {
  STARLING_TRY(check_says_data(job));
  STARLING_ASSIGN(const data::DatasetSpec dataset_spec, data::DatasetSpec::parse(job.data.dataset));
  STARLING_ASSIGN(const data::PartitionSpec partition_spec,
                  data::PartitionSpec::parse(job.data.partition));
  data::LoadOptions load;
  load.group_column = partition_spec.column;
  const auto dataset = data::load_dataset(dataset_spec, load);
  if (!dataset) return dataset.error().within("data.dataset");
  return data::partition_views(*dataset, partition_spec, clients);
}

// The part of its rows that each client holds out where the job does not say it. That of a recorded
// run: none of real devices, which say it themselves.
std::optional<double> hold_out_of(const Job& job, const SimulateOptions& options,
                                  const RecordedRun& recorded) {
  if (job.training.model.is_external()) return std::nullopt;
  if (options.replay) return recorded.hold_out;
  if (job.evaluate.federated_every > 0) return data::kHoldOut;
  const auto spec = data::DatasetSpec::parse(job.data.dataset);
  if (!spec || spec->has_test_split() || !evaluates_held_out(job)) return std::nullopt;
  return data::kHoldOut;
}

// The rows to evaluate on that the job leaves to the simulation, as starling-gossip simulate finds
// them: the test split of its data, or what the clients hold out. Synthetic rows are test rows
// where that is said alone.
void choose_evaluation(Job& job, const SimulateOptions& options, const RecordedRun& recorded) {
  if (!job.data.hold_out) job.data.hold_out = hold_out_of(job, options, recorded);
  auto spec = data::DatasetSpec::parse(job.data.dataset);
  if (!spec || !spec->has_test_split() || spec->kind == data::DatasetKind::kSynthetic) return;
  if (!evaluates_held_out(job) || job.data.hold_out.value_or(0) > 0) return;
  spec->split = data::Split::kTest;
  job.evaluate.dataset = spec->to_string();
}

// What each client trains on and holds out.
Result<std::vector<client::ClientData>> load_holdings(const Job& job, std::size_t clients) {
  // The trainers hold the data.
  if (job.training.model.is_external()) return std::vector<client::ClientData>(clients);
  STARLING_ASSIGN(const auto parts, load_parts(job, clients));
  const double fraction = job.data.hold_out.value_or(0);
  std::vector<client::ClientData> holdings;
  for (const data::DatasetView& part : parts) {
    data::Divided divided = data::hold_out(part, fraction);
    holdings.push_back({std::move(divided.training), std::move(divided.held_out)});
  }
  const bool some =
      std::ranges::any_of(holdings, [](const auto& h) { return h.held_out.has_value(); });
  if (some || job.evaluate.federated_every == 0) return holdings;
  return wrong_setting(
      "setting-invalid",
      fmt::format("evaluate.federated-every is set, and with data.hold-out = {:g} none of the {} "
                  "holds rows out: raise data.hold-out",
                  fraction, counted(clients, "client")));
}

// All share one data set; each client on its own would copy it.
Result<void> fit_holdings(std::vector<client::ClientData>& holdings, const data::RowNames& names) {
  auto dataset = holdings.front().training.dataset;
  if (dataset == nullptr) return {};
  STARLING_TRY(data::fit_to(dataset, names));
  for (client::ClientData& holding : holdings) {
    holding.training.dataset = dataset;
    if (holding.held_out) holding.held_out->dataset = dataset;
  }
  return {};
}

Result<void> check_trainer(const Job& job, const SimulateOptions& options) {
  if (job.training.model.is_external() == options.trainer.has_value()) return {};
  return wrong_setting(
      "setting-invalid",
      options.trainer
          ? fmt::format("--trainer is for models of your own: set model.kind = \"external\" (it "
                        "is \"{}\")",
                        job.training.model.kind)
          : "model.kind = \"external\" needs a trainer to simulate: --trainer \"python3 "
            "train.py\"");
}

std::vector<data::DatasetView> held_out_of(const std::vector<client::ClientData>& holdings) {
  std::vector<data::DatasetView> held_out;
  for (const client::ClientData& holding : holdings) {
    if (holding.held_out) held_out.push_back(*holding.held_out);
  }
  return held_out;
}

// Of a job that names nothing to evaluate on: all that the clients hold out.
Result<void> evaluate_held_out(RunContext& context, const std::vector<client::ClientData>& holdings,
                               Log* log) {
  const auto held_out = held_out_of(holdings);
  const double fraction = context.job.data.hold_out.value_or(0);
  context.evaluation = data::pooled(held_out);
  if (!context.evaluation) STARLING_TRY(check_stop_dataset(context.job));
  if (log == nullptr) return {};
  if (context.evaluation) {
    log->info("evaluates on {} that {} {} out (data.hold-out = {:g})",
              counted(context.evaluation->size(), "row"), counted(held_out.size(), "client"),
              held_out.size() == 1 ? "holds" : "hold", fraction);
  } else if (fraction > 0) {
    log->warning(
        "nothing is evaluated: with data.hold-out = {:g} none of the {} holds rows out; raise it, "
        "lower --clients, or set evaluate.dataset",
        fraction, counted(holdings.size(), "client"));
  } else {
    log->warning(
        "nothing is evaluated: set evaluate.dataset, or data.hold-out above 0 "
        "(evaluate.every = 0 says that nothing is to be)");
  }
  return {};
}

// What numbers to scale by are computed from: no row that is evaluated on.
Result<std::shared_ptr<const data::Dataset>> training_rows(
    const std::vector<client::ClientData>& holdings) {
  auto dataset = holdings.front().training.dataset;
  if (held_out_of(holdings).empty()) return dataset;
  std::vector<data::DatasetView> parts;
  for (const client::ClientData& holding : holdings) parts.push_back(holding.training);
  const data::DatasetView rows = data::pooled(parts).value();
  data::Dataset::Content content{.name = dataset->name(),
                                 .shape = dataset->shape(),
                                 .classes = dataset->classes(),
                                 .class_names = dataset->class_names(),
                                 .class_column = dataset->class_column(),
                                 .feature_names = dataset->feature_names(),
                                 .scaling = dataset->scaling()};
  content.features.reserve(rows.size() * dataset->shape().features());
  content.labels.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(rows.features(i), std::back_inserter(content.features));
    content.labels.push_back(rows.label(i));
  }
  return data::Dataset::make(std::move(content));
}

// With the job's trainers, null where the model is built in.
Result<std::unique_ptr<SimulatedTrainers>> start_trainers(const Job& job,
                                                          const SimulateOptions& options) {
  if (!options.trainer) return std::unique_ptr<SimulatedTrainers>();
  return SimulatedTrainers::start(job, *options.strategies, *options.trainer, options.threads,
                                  *options.log);
}

Result<RunContext> prepare(const Job& job, const std::vector<client::ClientData>& holdings,
                           SimulatedTrainers* trainers, const strategy::Catalogue& strategies) {
  if (trainers == nullptr) {
    auto rows = holdings.front().training.dataset;
    if (job.training.data.scales()) {
      STARLING_ASSIGN(rows, training_rows(holdings));
    }
    return prepare_run(job, rows, strategies);
  }
  STARLING_ASSIGN(const ExternalOrigin initial, trainers->initial_model(job));
  return prepare_run(job, nullptr, strategies, initial);
}

Result<void> check_clients(const Job& job, std::size_t clients) {
  const auto needed = static_cast<std::size_t>(job.clients_awaited());
  if (needed <= clients) return {};
  return wrong_setting(
      "setting-invalid",
      fmt::format("the job needs {} (round.wait-for, round.min-updates) and {} simulated: "
                  "use --clients {} or lower them",
                  counted(needed, "client"), clients == 1 ? "1 is" : fmt::format("{} are", clients),
                  needed));
}

Result<RecordedRun> load_replay(const Job& job, const SimulateOptions& options) {
  if (!options.replay) return RecordedRun{};
  const auto text = read_text_file(*options.replay, kRunJsonBytesMax);
  if (!text) return as_wrong_job(text.error());
  auto parsed = parse_recorded_run(*text);
  if (!parsed) return as_wrong_job(parsed.error());
  RecordedRun& recorded = *parsed;
  if (recorded.seed != job.job.seed) {
    return wrong_setting(
        "bad-replay", fmt::format("the recorded run had the seed {}: add --seed {}", recorded.seed,
                                  recorded.seed));
  }
  std::set<std::string> known;
  for (std::size_t k = 1; k <= options.clients; ++k) known.insert(fmt::format("client-{}", k));
  for (const auto& [round, names] : recorded.replay.contributors) {
    const auto stranger = std::find_if(names.begin(), names.end(),
                                       [&](const auto& name) { return !known.contains(name); });
    if (stranger == names.end()) continue;
    return wrong_setting(
        "bad-replay",
        fmt::format("round {} had the contributor '{}'; {} simulated clients are named "
                    "client-1 to client-{}",
                    round, *stranger, options.clients, options.clients));
  }
  return recorded;
}

Result<std::optional<SimulatedWorld>> make_world(const Job& job, const SimulateOptions& options) {
  if (!options.world) return std::optional<SimulatedWorld>();
  const auto clients = static_cast<std::uint32_t>(options.clients);
  STARLING_ASSIGN(auto made, SimulatedWorld::make(*options.world, clients, job.job.seed));
  return std::optional(std::move(made));
}

Result<void> check_job(const Job& job, const SimulateOptions& options) {
  STARLING_TRY(job.validate(*options.strategies));
  STARLING_TRY(check_new_job(job, *options.strategies));
  return check_clients(job, options.clients);
}

}  // namespace

Result<void> check_simulation(const Job& job, const SimulateOptions& options) {
  STARLING_TRY(check_job(job, options));
  STARLING_TRY(check_trainer(job, options));
  if (!job.training.model.is_external()) {
    if (!job.data.dataset.empty()) STARLING_TRY(data::DatasetSpec::parse(job.data.dataset));
    STARLING_TRY(data::PartitionSpec::parse(job.data.partition));
  }
  if (const auto bounds = check_bounds(job); !bounds) return as_wrong_job(bounds.error());
  STARLING_TRY(make_world(job, options));
  return {};
}

Result<void> check_data(const Job& job, data::ReadableDatasets& files) {
  if (job.training.model.is_external()) return {};
  STARLING_TRY(check_says_data(job));
  STARLING_ASSIGN(const auto partition, data::PartitionSpec::parse(job.data.partition));
  const auto training = files.check(job.data.dataset, partition.column);
  if (!training) return as_wrong_job(training.error().within("data.dataset"));
  if (!job.evaluate.on_dataset()) return {};
  const auto evaluation = files.check(job.evaluate.dataset);
  return evaluation ? evaluation : as_wrong_job(evaluation.error().within("evaluate.dataset"));
}

// Why a run of this job that was stopped begins again; nothing: it goes on.
std::optional<std::string> cannot_go_on(const Job& job, const SimulateOptions& options) {
  if (!options.world) return std::nullopt;
  if (job.fallback.enabled()) {
    return "a simulation with a fallback network ([fallback]) does not save what its clients "
           "gossip";
  }
  // It reads its models when it is back.
  if (!options.world->coordinator_link.coordinator_away.empty() && job.checkpoint.keep > 0) {
    return "a simulation with network.coordinator-away can only be repeated with all its models, "
           "and checkpoint.keep removes some";
  }
  return std::nullopt;
}

bool evaluates_held_out(const Job& job) {
  return job.evaluate.dataset.empty() && job.evaluate.every > 0 &&
         job.evaluate.federated_every == 0 && !job.training.model.is_external();
}

Result<SimulationResult> simulate(const Job& wanted, const SimulateOptions& options,
                                  const Clock& clock, FederationSimulator::Hooks hooks) {
  STARLING_TRY(check_job(wanted, options));
  STARLING_TRY(check_trainer(wanted, options));
  STARLING_ASSIGN(const RecordedRun recorded, load_replay(wanted, options));
  Job job = wanted;
  choose_evaluation(job, options, recorded);
  auto loaded = load_holdings(job, options.clients);
  if (!loaded) return as_wrong_job(loaded.error());
  STARLING_ASSIGN(const auto trainers, start_trainers(job, options));
  auto prepared = prepare(job, *loaded, trainers.get(), *options.strategies);
  if (!prepared) return as_wrong_job(prepared.error());
  // As a service refuses at its submission what would only fail as a run.
  if (const auto bounds = check_bounds(job); !bounds) return as_wrong_job(bounds.error());
  const auto fitted = fit_holdings(*loaded, prepared->for_clients.data.names());
  if (!fitted) return as_wrong_job(fitted.error());
  if (evaluates_held_out(job)) {
    STARLING_TRY(evaluate_held_out(*prepared, *loaded, options.log));
  }
  STARLING_ASSIGN(const auto world, make_world(job, options));
  std::optional<std::string> why = cannot_go_on(job, options);
  if (!why && trainers && trainers->keeps_private_tensors()) {
    why = "the trainer keeps private tensors itself, and the simulation does not save them";
  }
  const PreparedSimulation simulation{.context = *prepared,
                                      .options = options,
                                      .holdings = *loaded,
                                      .world = world,
                                      .trainers = trainers.get(),
                                      .recorded = recorded,
                                      .clock = clock,
                                      .hooks = hooks,
                                      .cannot_go_on = std::move(why)};
  return run_simulation(simulation);
}

}  // namespace starling::coordinator
