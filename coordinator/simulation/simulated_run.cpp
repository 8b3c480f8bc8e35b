// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulated_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <map>
#include <utility>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/simulation/simulation_identity.h"
#include "coordinator/simulation/simulation_output.h"
#include "core/base/archive_file.h"
#include "core/base/counted.h"
#include "core/base/list_some.h"
#include "core/config/settings_json.h"
#include "core/linalg/kernels.h"
#include "core/store/checkpoints.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

constexpr const char* kBeginsAgain = "begins-again";

// The first round whose model is not the recorded one, or another end.
std::optional<Error> difference(const RecordedRun& recorded, const Job& job,
                                const std::vector<store::RoundRecord>& rounds) {
  const double held_out = job.data.hold_out.value_or(0);
  const std::string other_hold_out =
      recorded.hold_out.value_or(0) == held_out
          ? ""
          : fmt::format("; data.hold-out is {} there and {:g} here",
                        recorded.hold_out ? fmt::format("{:g}", *recorded.hold_out) : "not known",
                        held_out);
  for (const store::RoundRecord& record : rounds) {
    const auto model = recorded.models.find(record.key.round);
    if (!record.model || model == recorded.models.end()) continue;
    if (record.model->hex() == model->second) continue;
    return rejected(
        "replay-differs",
        fmt::format("from round {} on the models are not the recorded ones: the job, the "
                    "data, their partition or the instruction set differ{}",
                    record.key.round, other_hold_out));
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

// What wrote it, by which a repeated command knows its own.
void add_program(boost::json::value& run) {
  run.as_object()["program"] = kSimulateProgram;
  run.as_object()["version"] = STARLING_VERSION;
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

// The links between the coordinator and each client, and with a fallback network those between
// clients.
sim::Pairs written_pairs(const SimulatedWorld& world, const Job& job) {
  const std::uint32_t coordinator = world.clients();
  const bool clients_gossip = job.fallback.enabled() && coordinator < sim::kAllPairsMax;
  if (clients_gossip) return sim::all_pairs(coordinator + 1);
  sim::Pairs pairs;
  for (std::uint32_t client = 0; client < coordinator; ++client) {
    pairs.emplace_back(client, coordinator);
  }
  return pairs;
}

std::string to_text(const boost::json::value& run) { return boost::json::serialize(run) + "\n"; }

// What run.json has of a run that has not begun.
std::string text_before(const PreparedSimulation& simulation) {
  const JobOptions& job = simulation.context.job.job;
  const store::Run run{.id = RunId(1),
                       .name = job.name,
                       .seed = job.seed,
                       .job = job_to_toml(simulation.context.job)};
  boost::json::value value = run_to_json(run, {}, {});
  add_program(value);
  value.as_object()["simulation"] = config::to_json(simulation.options.asked);
  value.as_object()["inputs"] = config::to_json(simulation.options.inputs);
  return to_text(value);
}

// A run from its beginning, or from where another process saved it, to its end.
class SimulatedRun {
 public:
  // `output`: null, nothing is written. `journal`: null, nothing is saved. Both must outlive the
  // run.
  SimulatedRun(const PreparedSimulation& simulation, const SimulationOutput* output,
               SimulationJournal* journal)
      : simulation_(simulation),
        output_(output),
        journal_(journal),
        disk_(output != nullptr ? output->models() : std::filesystem::path()),
        store_(store::open_store_in_memory()),
        simulator_(*store_, journal != nullptr ? journal->clock() : simulation.clock,
                   simulator_options(), hooks()) {
    for (std::size_t k = 0; k < simulation.holdings.size(); ++k) {
      simulator_.add_client(fmt::format("client-{}", k + 1), simulation.holdings[k]);
    }
  }

  Result<SimulationResult> run() {
    if (journal_ != nullptr && journal_->repeats()) {
      disk_.begin_repetition();
      journal_->on_repeated_write = [this](const auto& model) {
        disk_.repeat_write(model);
        repeated_.insert_or_assign(model.round, model);
      };
    }
    STARLING_ASSIGN(const RunId id,
                    simulator_.run(simulation_.context, simulation_.recorded.replay));
    STARLING_ASSIGN(const auto run, store_->find_run(id));
    STARLING_ASSIGN(const auto rounds, store_->rounds(id, 1));
    STARLING_ASSIGN(boost::json::value value, so_far(id));
    SimulationResult result{.run = std::move(value), .state = run->state};
    result.warning = instruction_set_warning(simulation_.recorded);
    result.error = difference(simulation_.recorded, simulation_.context.job, rounds);
    if (!run->error_code.empty()) result.error = rejected(run->error_code, run->error);
    if (result.error && simulation_.world) {
      result.error =
          explain_deadline(*result.error, simulation_.context, *simulation_.world, rounds);
    }
    if (output_ != nullptr) {
      if (simulation_.world) STARLING_TRY(write_values(*simulation_.world));
      STARLING_TRY(output_->finish(to_text(result.run), damaged_));
    }
    if (result.warning.empty()) result.warning = damage_warning();
    return result;
  }

 private:
  FederationSimulator::Options simulator_options() {
    const SimulateOptions& options = simulation_.options;
    FederationSimulator::Options made{.threads = options.threads, .strategies = options.strategies};
    made.world = simulation_.world;
    if (made.world) made.transfer = {};  // pieces and credit as on a real link: round trips cost
    if (output_ != nullptr) made.checkpoints.emplace(disk_, output_->models());
    if (simulation_.trainers != nullptr) made.trainers = simulation_.trainers->trainers();
    made.journal = journal_;
    return made;
  }

  FederationSimulator::Hooks hooks() {
    FederationSimulator::Hooks hooks = simulation_.hooks;
    hooks.on_repeated = [this]() -> Result<void> {
      if (Log* log = simulation_.options.log) {
        log->info("goes on after round {}", journal_->last_round());
        STARLING_TRY(say_damage(*log));
      }
      return disk_.end_repetition();
    };
    hooks.on_commit = [this](RunId id) { return save_if_wanted(id); };
    return hooks;
  }

  // They are not computed again: what is damaged stays so.
  Result<void> say_damage(Log& log) {
    const store::Checkpoints models(disk_, output_->models());
    for (const auto& [round, model] : std::exchange(repeated_, {})) {
      std::error_code ignored;
      const bool is_there = std::filesystem::exists(models.path(round), ignored);
      if (!is_there && simulation_.context.job.checkpoint.keep > 0) continue;  // removed, maybe
      STARLING_ASSIGN(const std::string damage, store::find_damage(models, model, hash_model_file));
      if (damage.empty()) continue;
      log.warning("{}; the run goes on without it: another --out has all its models", damage);
      damaged_.push_back(round);
    }
    return {};
  }

  Result<void> write_values(const SimulatedWorld& world) const {
    const std::uint32_t clients = world.clients();
    return output_->write_values(
        {.network = world.network(),
         .access_links = world.draws_coordinator_bandwidth() ? clients + 1 : clients,
         .pairs = written_pairs(world, simulation_.context.job),
         .population = world.population(),
         .nodes = clients,
         .until = to_seconds(simulator_.now() - TimePoint{})});
  }

  // Again at the end: many lines may have come since.
  std::string damage_warning() const {
    if (damaged_.empty()) return {};
    const auto count = counted(damaged_.size(), "model");
    return fmt::format("{} of earlier rounds {} damaged or missing, and not in SHA256SUMS: {}",
                       count, damaged_.size() == 1 ? "is" : "are",
                       list_some(damaged_, 5, store::Checkpoints::file_name));
  }

  Result<void> save_if_wanted(RunId id) {
    SavePolicy* const saves = simulation_.options.saves;
    if (saves == nullptr || output_ == nullptr) return {};
    const TimePoint before = simulation_.clock.now();
    const SaveNow now = saves->at(before);
    if (now == SaveNow::kNothing) return {};
    if (journal_ == nullptr) {
      if (now == SaveNow::kSave) return {};
      return rejected("stopped", fmt::format("stopped: {}, and the same command begins again",
                                             *simulation_.cannot_go_on));
    }
    STARLING_TRY(save_archive(output_->checkpoint(), simulation_.identity(),
                              [this](Archive& state) { journal_->archive(state); }));
    STARLING_ASSIGN(const boost::json::value value, so_far(id));
    STARLING_TRY(output_->write_unfinished(to_text(value)));
    const TimePoint after = simulation_.clock.now();
    saves->saved(after, after - before);
    if (now == SaveNow::kSave) return {};
    return rejected("stopped", fmt::format("stopped after round {}: the same command goes on from "
                                           "there",
                                           journal_->last_round()));
  }

  Result<boost::json::value> so_far(RunId id) const {
    STARLING_ASSIGN(const auto run, store_->find_run(id));
    STARLING_ASSIGN(const auto rounds, store_->rounds(id, 1));
    STARLING_ASSIGN(const auto evaluations, store_->evaluations(id, 1));
    boost::json::value value = run_to_json(*run, rounds, evaluations);
    add_program(value);
    boost::json::object& object = value.as_object();
    object["instruction_set"] = linalg::default_kernels().name;
    const SimulateOptions& options = simulation_.options;
    if (!options.asked.empty()) object["simulation"] = config::to_json(options.asked);
    if (!options.inputs.empty()) object["inputs"] = config::to_json(options.inputs);
    if (simulation_.world) add_virtual_seconds(value, simulator_);
    return value;
  }

  const PreparedSimulation& simulation_;
  const SimulationOutput* const output_;
  SimulationJournal* const journal_;
  OutputDisk disk_;
  std::map<Round, store::ModelRecord> repeated_;  // the last that the other process wrote
  std::vector<Round> damaged_;                    // of them
  const std::unique_ptr<store::Store> store_;
  FederationSimulator simulator_;
};

// From where another process saved it; kBeginsAgain where that cannot be.
Result<SimulationResult> go_on(const PreparedSimulation& simulation,
                               const SimulationOutput& output) {
  if (simulation.cannot_go_on) return rejected(kBeginsAgain, *simulation.cannot_go_on);
  SimulationJournal journal(simulation.clock, simulation.context.layout);
  const auto loaded = load_archive(output.checkpoint(), simulation.identity(),
                                   [&](Archive& state) { journal.archive(state); });
  if (!loaded && loaded.error().code() == "file-missing") {
    return rejected(kBeginsAgain, "the run was stopped before its state was first saved");
  }
  if (!loaded) return rejected(kBeginsAgain, loaded.error().message());
  auto result = SimulatedRun(simulation, &output, &journal).run();
  if (result || result.error().code() != "repetition-differs") return result;
  return rejected(kBeginsAgain, fmt::format("{} cannot be used: {}", output.checkpoint().string(),
                                            result.error().message()));
}

}  // namespace

Sha256Digest PreparedSimulation::identity() const {
  return identity_of(context, options, holdings);
}

Result<SimulationResult> run_simulation(const PreparedSimulation& simulation) {
  const SimulateOptions& options = simulation.options;
  if (!options.out) return SimulatedRun(simulation, nullptr, nullptr).run();
  const std::string before = text_before(simulation);
  STARLING_ASSIGN(SimulationOutput output,
                  SimulationOutput::begin(*options.out, options.asked, options.inputs, before));
  if (output.was_begun()) {
    auto result = go_on(simulation, output);
    if (result || result.error().code() != kBeginsAgain) return result;
    if (options.log != nullptr) {
      options.log->warning("{}; the run begins again", result.error().message());
    }
    STARLING_TRY(output.begin_again());
    STARLING_TRY(output.write_unfinished(before));
  }
  if (options.saves == nullptr || simulation.cannot_go_on) {
    return SimulatedRun(simulation, &output, nullptr).run();
  }
  SimulationJournal journal(simulation.clock, simulation.context.layout);
  return SimulatedRun(simulation, &output, &journal).run();
}

}  // namespace starling::coordinator
