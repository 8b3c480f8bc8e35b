// SPDX-License-Identifier: Apache-2.0
// A whole simulated run: from its options to its measurements, final model and trace.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/base/save_policy.h"
#include "gossip/simulation/experiment.h"
#include "gossip/simulation/measurement.h"

namespace starling::gossip {

// A file with the state of an unfinished simulation: one that finds it goes on from there, with the
// same bits as if it had never stopped.
struct SimulationCheckpoints {
  std::filesystem::path file;
  Sha256Digest identity;  // run_identity.h; the state of another is refused
  // Asked between steps with the clock's time, so that asking reads no clock.
  std::function<SaveNow(TimePoint now)> now;
  std::function<void(Duration took)> saved = {};  // after each
};

struct SimulationHooks {
  // Before the first measurement, where a checkpoint of this step is gone on from.
  std::function<void(std::uint64_t step)> on_resume;
  // Also those before a checkpoint that is gone on from, again.
  std::function<void(const Measurement&)> on_measurement;
  // After every few steps, for a progress bar.
  std::function<void(const Totals&)> on_progress;
  std::optional<SimulationCheckpoints> checkpoints = {};
};

struct SimulationResult {
  std::vector<Measurement> measurements;  // the first before any step, the last after all
  model::Parameters mean_model;
  Totals totals;
  double wall_seconds = 0;      // of everything after preparation
  double stepping_seconds = 0;  // without the measurements
  Sha256Digest trace;
  Sha256Digest models;             // Measurer::models_digest() of the last
  std::vector<bool> present = {};  // [nodes], at the last
  std::string incomplete = {};     // of a launched network: whose last model it lacks
};

// Requires: the experiment is prepared for what is simulated, or for the recurrence, which bears
// less. The same result, but for wall seconds, on any number of threads. Fails with "diverged",
// "all-left" or "no-progress", and as protocol_simulation.h; with checkpoints, as load_archive()
// and save_archive(), and with "stopped". Simulations of whole peers, and of algorithms of one's
// own that offer no archive(), save nothing and begin again.
[[nodiscard]] Result<SimulationResult> simulate(const Experiment& experiment, unsigned threads,
                                                const Clock& clock, const SimulationHooks& hooks,
                                                Simulated simulated = Simulated::kRecurrence);

}  // namespace starling::gossip
