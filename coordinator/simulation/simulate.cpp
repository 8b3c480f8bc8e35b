// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "coordinator/rounds/run_json.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/simulation/simulated_trainers.h"
#include "core/base/counted.h"
#include "core/base/disk.h"
#include "core/base/durable_file.h"
#include "core/data/hold_out.h"
#include "core/data/load.h"
#include "core/data/partition.h"
#include "core/linalg/kernels.h"
#include "core/report/run_directory.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

constexpr std::size_t kRunJsonBytesMax = std::size_t{1} << 30;

Result<std::vector<data::DatasetView>> load_parts(const Job& job, std::size_t clients) {
  if (job.data.dataset.empty()) {
    return wrong_setting(
        "no-data",
        "the job does not say what the simulated clients hold: set data.dataset, for "
        "example \"fashion-mnist:/usr/share/datasets/fashion-mnist\"");
  }
  STARLING_ASSIGN(const data::DatasetSpec dataset_spec, data::DatasetSpec::parse(job.data.dataset));
  STARLING_ASSIGN(const data::PartitionSpec partition_spec,
                  data::PartitionSpec::parse(job.data.partition));
  data::LoadOptions load;
  load.group_column = partition_spec.column;
  const auto dataset = data::load_dataset(dataset_spec, load);
  if (!dataset) return dataset.error().within("data.dataset");
  return data::partition_views(*dataset, partition_spec, clients);
}

// What each client trains on and holds out.
Result<std::vector<client::ClientData>> load_holdings(const Job& job, std::size_t clients) {
  // The trainers hold the data.
  if (job.training.model.is_external()) return std::vector<client::ClientData>(clients);
  STARLING_ASSIGN(const auto parts, load_parts(job, clients));
  std::vector<client::ClientData> holdings;
  for (const data::DatasetView& part : parts) {
    data::Divided divided = data::hold_out(part, job.data.hold_out);
    holdings.push_back({std::move(divided.training), std::move(divided.held_out)});
  }
  const bool some =
      std::ranges::any_of(holdings, [](const auto& h) { return h.held_out.has_value(); });
  if (some || job.evaluate.federated_every == 0) return holdings;
  return wrong_setting(
      "setting-invalid",
      fmt::format("evaluate.federated-every is set, and with data.hold-out = {:g} none of the {} "
                  "holds rows out: raise data.hold-out, for example to 0.1",
                  job.data.hold_out, counted(clients, "client")));
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

// With the job's trainers, null where the model is built in.
Result<std::unique_ptr<SimulatedTrainers>> start_trainers(const Job& job,
                                                          const SimulateOptions& options) {
  if (!options.trainer) return std::unique_ptr<SimulatedTrainers>();
  return SimulatedTrainers::start(job, *options.strategies, *options.trainer, options.threads,
                                  *options.log);
}

Result<RunContext> prepare(const Job& job, const std::vector<client::ClientData>& holdings,
                           SimulatedTrainers* trainers, const strategy::Catalogue& strategies) {
  if (trainers == nullptr) return prepare_run(job, holdings.front().training.dataset, strategies);
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

// The first round whose model is not the recorded one, or another end.
std::optional<Error> difference(const RecordedRun& recorded,
                                const std::vector<store::RoundRecord>& rounds) {
  for (const store::RoundRecord& record : rounds) {
    const auto model = recorded.models.find(record.key.round);
    if (!record.model || model == recorded.models.end()) continue;
    if (record.model->hex() == model->second) continue;
    return rejected(
        "replay-differs",
        fmt::format("from round {} on the models are not the recorded ones: the job, the "
                    "data, their partition or the instruction set differ",
                    record.key.round));
  }
  if (recorded.models.empty()) return std::nullopt;
  const Round recorded_end = recorded.models.rbegin()->first;
  const auto last = std::find_if(rounds.rbegin(), rounds.rend(),
                                 [](const store::RoundRecord& r) { return r.model.has_value(); });
  const Round end = last == rounds.rend() ? 0 : last->key.round;
  if (end == recorded_end) return std::nullopt;
  return rejected(
      "replay-differs",
      fmt::format(
          "the recorded run ended after round {} and this one after round {}, with the same "
          "models until then; evaluations by clients are not repeated, so that a stop by "
          "one of them may come elsewhere: replay with --rounds {} and without [stop]",
          recorded_end, end, recorded_end));
}

// Kernels of another instruction set round differently.
std::string instruction_set_warning(const RecordedRun& recorded) {
  const std::string_view here = linalg::default_kernels().name;
  if (recorded.instruction_set.empty() || recorded.instruction_set == here) return {};
  return fmt::format(
      "the recorded run was trained with the instruction set {} and this one with {}: the models "
      "will differ in their last bits (STARLING_ISA={} repeats them where the processor has it)",
      recorded.instruction_set, here, recorded.instruction_set);
}

Result<void> check_job(const Job& job, const SimulateOptions& options) {
  STARLING_TRY(job.validate(*options.strategies));
  STARLING_TRY(check_new_job(job, *options.strategies));
  return check_clients(job, options.clients);
}

// What a simulation leaves that was interrupted; also of an empty or missing directory.
bool has_only_models(const std::filesystem::path& out) {
  std::error_code ignored;
  return std::ranges::all_of(std::filesystem::directory_iterator(out, ignored),
                             [](const auto& entry) {
                               const auto name = entry.path().filename();
                               return name == "models" || name == "report.html";
                             });
}

// Two studies in one directory would look like one.
Result<void> prepare_out(const std::filesystem::path& out) {
  std::error_code ignored;
  const std::filesystem::path models = out / "models";
  // Also where a simulation failed before its first model.
  const bool has_models = std::filesystem::exists(models, ignored);
  if (has_only_models(out) && (!has_models || std::filesystem::is_empty(models, ignored))) {
    return make_directory(models);
  }
  std::string why = "is not empty: name a new directory with --out";
  if (std::filesystem::exists(out / "run.json", ignored)) {
    why = "holds a simulation already: name a new directory with --out, or remove it";
  } else if (has_only_models(out)) {
    why = "holds an unfinished simulation: name a new directory with --out, or remove it";
  }
  return rejected("out-not-empty", out.string() + " " + why);
}

// A service waits for room on a full disk. A simulation ends: waiting in virtual time frees none.
class OutputDisk final : public SystemDisk {
 public:
  Result<void> write(const std::filesystem::path& path,
                     std::span<const SharedBytes> parts) override {
    auto written = SystemDisk::write(path, parts);
    if (written || written.error().kind() != ErrorKind::kOverloaded) return written;
    return internal(written.error().code(), written.error().message());
  }
};

Result<FederationSimulator::Options> simulator_options(const Job& job,
                                                       const SimulateOptions& options, Disk& disk) {
  FederationSimulator::Options made{.threads = options.threads, .strategies = options.strategies};
  if (options.world) {
    const auto clients = static_cast<std::uint32_t>(options.clients);
    STARLING_ASSIGN(made.world, SimulatedWorld::make(*options.world, clients, job.job.seed));
    // Pieces and credit as on a real link, whose round trips they cost.
    made.transfer = {};
  }
  if (options.out) {
    STARLING_TRY(prepare_out(*options.out));
    made.checkpoints.emplace(disk, *options.out / "models");
  }
  return made;
}

void add_asked(const Settings& asked, boost::json::value& run) {
  boost::json::object settings;
  for (const auto& [key, value] : asked) settings[key] = value;
  run.as_object()["simulation"] = std::move(settings);
}

// What each round says of virtual time: its end, from the start.
void add_virtual_seconds(boost::json::value& run, const FederationSimulator& simulator) {
  for (boost::json::value& entry : run.at("rounds").as_array()) {
    boost::json::object& round = entry.as_object();
    const auto ended = simulator.ended_at().find(
        {round.at("round").to_number<Round>(), round.at("attempt").to_number<Attempt>()});
    round["virtual_seconds"] = ended == simulator.ended_at().end()
                                   ? boost::json::value(nullptr)
                                   : boost::json::value(ended->second);
  }
}

// Links that are too slow for the deadline look like clients that do not answer: says so.
Error explain_deadline(const Error& error, const RunContext& context, const SimulatedWorld& world,
                       const std::vector<store::RoundRecord>& rounds) {
  const auto late = [](const store::Failure& failure) { return failure.code == "deadline"; };
  if (error.code() != "too-few-updates" || rounds.empty()) return error;
  const store::RoundRecord& last = rounds.back();
  if (std::ranges::none_of(last.result.failures, late)) return error;
  const std::uint64_t bytes = last.cohort.size() * context.layout->size() * sizeof(float);
  return rejected(
      error.code(),
      fmt::format("{}; updates came after round.deadline = {}. The coordinator's link alone takes "
                  "{:.1f} s to send the model to {}: raise round.deadline, "
                  "network.bandwidth or network.coordinator-bandwidth",
                  error.message(), format_duration(context.job.round.deadline),
                  world.coordinator_seconds(bytes), counted(last.cohort.size(), "client")));
}

}  // namespace

std::vector<std::string> simulation_files() { return {"models", "run.json", "report.html"}; }

Result<void> check_simulation(const Job& job, const SimulateOptions& options) {
  STARLING_TRY(check_job(job, options));
  STARLING_TRY(check_trainer(job, options));
  if (!job.training.model.is_external()) {
    if (!job.data.dataset.empty()) STARLING_TRY(data::DatasetSpec::parse(job.data.dataset));
    STARLING_TRY(data::PartitionSpec::parse(job.data.partition));
  }
  if (const auto bounds = check_bounds(job); !bounds) return as_wrong_job(bounds.error());
  if (!options.world) return {};
  const auto clients = static_cast<std::uint32_t>(options.clients);
  STARLING_TRY(SimulatedWorld::make(*options.world, clients, job.job.seed));
  return {};
}

Result<SimulationResult> simulate(const Job& job, const SimulateOptions& options,
                                  const Clock& clock, FederationSimulator::Hooks hooks) {
  STARLING_TRY(check_job(job, options));
  STARLING_TRY(check_trainer(job, options));
  STARLING_ASSIGN(const RecordedRun recorded, load_replay(job, options));
  auto loaded = load_holdings(job, options.clients);
  if (!loaded) return as_wrong_job(loaded.error());
  std::vector<client::ClientData>& holdings = *loaded;
  STARLING_ASSIGN(const auto trainers, start_trainers(job, options));
  const auto prepared = prepare(job, holdings, trainers.get(), *options.strategies);
  if (!prepared) return as_wrong_job(prepared.error());
  const RunContext& context = *prepared;
  // As a service refuses at its submission what would only fail as a run.
  if (const auto bounds = check_bounds(job); !bounds) return as_wrong_job(bounds.error());
  const auto store = store::open_store_in_memory();
  OutputDisk disk;
  STARLING_ASSIGN(auto made, simulator_options(job, options, disk));
  if (trainers) made.trainers = trainers->trainers();
  const std::optional<SimulatedWorld> world = made.world;
  FederationSimulator simulator(*store, clock, std::move(made), std::move(hooks));
  const auto fitted = fit_holdings(holdings, context.for_clients.data.names());
  if (!fitted) return as_wrong_job(fitted.error());
  for (std::size_t k = 0; k < holdings.size(); ++k) {
    simulator.add_client(fmt::format("client-{}", k + 1), std::move(holdings[k]));
  }
  STARLING_ASSIGN(const RunId id, simulator.run(context, recorded.replay));
  STARLING_ASSIGN(const auto run, store->find_run(id));
  STARLING_ASSIGN(const auto rounds, store->rounds(id, 1));
  STARLING_ASSIGN(const auto evaluations, store->evaluations(id, 1));
  SimulationResult result{.run = run_to_json(*run, rounds, evaluations), .state = run->state};
  result.run.as_object()["instruction_set"] = linalg::default_kernels().name;
  if (!options.asked.empty()) add_asked(options.asked, result.run);
  result.warning = instruction_set_warning(recorded);
  if (world) add_virtual_seconds(result.run, simulator);
  result.error = difference(recorded, rounds);
  if (!run->error_code.empty()) result.error = rejected(run->error_code, run->error);
  if (result.error && world) {
    result.error = explain_deadline(*result.error, context, *world, rounds);
  }
  if (options.out) {
    const std::string text = boost::json::serialize(result.run) + "\n";
    // run.json says that all is there, so it comes last.
    STARLING_TRY(report::write_report(*options.out, report::RunKind::kFederated, text));
    STARLING_TRY(write_durably(*options.out / "run.json", as_bytes(text)));
  }
  return result;
}

}  // namespace starling::coordinator
