// SPDX-License-Identifier: Apache-2.0
// A simulated run whose data, models and trainers are there: runs it, saves it, goes on with it,
// and writes its files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/rounds/run_json.h"
#include "coordinator/simulation/simulate.h"
#include "coordinator/simulation/simulated_trainers.h"

namespace starling::coordinator {

// All of it must outlive the simulation.
struct PreparedSimulation {
  const RunContext& context;
  const SimulateOptions& options;
  const std::vector<client::ClientData>& holdings;  // of each client
  const std::optional<SimulatedWorld>& world;
  SimulatedTrainers* trainers;  // null: the model is built in
  const RecordedRun& recorded;
  const Clock& clock;
  const FederationSimulator::Hooks& hooks;
  std::optional<std::string> cannot_go_on;  // why it begins again when it was stopped

  Sha256Digest identity() const;
};

// The errors of simulate().
[[nodiscard]] Result<SimulationResult> run_simulation(const PreparedSimulation& simulation);

}  // namespace starling::coordinator
