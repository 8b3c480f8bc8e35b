// SPDX-License-Identifier: Apache-2.0
// `starling-coordinator simulate`: a job on N simulated clients, without sockets. Client k is named
// client-k and holds part k of N of the job's data.
#pragma once

#include <boost/json/value.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/simulation/federation_simulator.h"
#include "core/base/log.h"
#include "core/base/save_policy.h"
#include "core/base/settings.h"
#include "core/client/trainer_host.h"
#include "core/data/load.h"

namespace starling::coordinator {

struct SimulateOptions {
  std::size_t clients = 10;
  unsigned threads = 1;
  // Of a job with model.kind = "external": one process a thread; its output goes to `log`.
  std::optional<client::TrainerOptions> trainer;
  Log* log = nullptr;           // must outlive the simulation; needed with a trainer
  SavePolicy* saves = nullptr;  // of a run with `out`; null: never. Must outlive the simulation
  std::optional<WorldOptions> world;            // none: messages and training take no time
  std::optional<std::filesystem::path> out;     // run.json, models/, report.html
  std::optional<std::filesystem::path> replay;  // a run.json whose contributors are repeated
  // What the user decided, recorded in run.json as `simulation` where it is not empty.
  Settings asked = {};
  // Digests of the files that it names (study::InputDigests), recorded as `inputs`.
  Settings inputs = {};
  // The built-in strategies, or a catalogue with the user's own; must outlive the simulation.
  const strategy::Catalogue* strategies = &strategy::builtin_strategies();
};

struct SimulationResult {
  // As `run show --format json`, and the `instruction_set` that trained; in a world, rounds have
  // `virtual_seconds`.
  boost::json::value run;
  store::RunState state = store::RunState::kCompleted;
  std::optional<Error> error;  // where the run failed
  std::string warning;         // of a replay that may differ; mostly empty
};

// What simulate() refuses that can be seen without data, models and trainers.
[[nodiscard]] Result<void> check_simulation(const Job& job, const SimulateOptions& options);

// Whether the data that the job names can be read: else simulate() fails.
[[nodiscard]] Result<void> check_data(const Job& job, data::ReadableDatasets& files);

// Whether the job leaves it to its simulation what the model is evaluated on.
bool evaluates_held_out(const Job& job);

// Why a run of this job that was stopped begins again; nothing: it goes on, unless its trainer
// keeps private tensors.
std::optional<std::string> cannot_go_on(const Job& job, const SimulateOptions& options);

// Fails where the simulation cannot be held; a run that fails is a result. What was stopped in
// `out` goes on, with the same bits as if it had never stopped; where that cannot be, `log` is told
// why, and it begins again. "stopped" where `saves` asked for it, after the round at work.
[[nodiscard]] Result<SimulationResult> simulate(const Job& job, const SimulateOptions& options,
                                                const Clock& clock,
                                                FederationSimulator::Hooks hooks);

}  // namespace starling::coordinator
