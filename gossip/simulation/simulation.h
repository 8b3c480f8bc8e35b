// SPDX-License-Identifier: Apache-2.0
// A whole simulated run: from its options to its measurements, final model and trace.
#pragma once

#include <functional>
#include <vector>

#include "core/base/clock.h"
#include "gossip/simulation/experiment.h"
#include "gossip/simulation/measurement.h"

namespace starling::gossip {

struct SimulationHooks {
  std::function<void(const Measurement&)> on_measurement;
  // After every few steps, for a progress bar.
  std::function<void(const Totals&)> on_progress;
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
};

// What is simulated: the algorithm's recurrence, or whole peers (protocol_simulation.h).
enum class Protocol { kRecurrence, kReal };

// The same result, but for wall seconds, on any number of threads. Fails with "diverged",
// "all-left" or "no-progress".
[[nodiscard]] Result<SimulationResult> simulate(const Experiment& experiment, unsigned threads,
                                                const Clock& clock, const SimulationHooks& hooks,
                                                Protocol protocol = Protocol::kRecurrence);

}  // namespace starling::gossip
