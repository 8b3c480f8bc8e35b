// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/simulation.h"

#include <algorithm>
#include <limits>

#include "gossip/simulation/protocol_simulation.h"

namespace starling::gossip {
namespace {

// Of virtual time, infinite where the user set no limit.
double time_limit(const NetOptions& options) {
  if (options.run.virtual_time == Duration::zero()) return std::numeric_limits<double>::infinity();
  return to_seconds(options.run.virtual_time);
}

// A progress bar wants to move some fifty times a run.
std::uint64_t stride(const NetOptions& options) {
  return std::max<std::uint64_t>(1, std::min(options.run.steps / 50, options.evaluate_every()));
}

}  // namespace

Result<SimulationResult> simulate(const Experiment& experiment, unsigned threads,
                                  const Clock& clock, const SimulationHooks& hooks,
                                  Protocol protocol) {
  ComputePool pool(threads);
  const TimePoint started = clock.now();
  const NetOptions& options = experiment.options;
  std::unique_ptr<NetworkSimulation> simulation;
  if (protocol == Protocol::kReal) {
    STARLING_ASSIGN(simulation, make_protocol_simulation(experiment, pool));
  } else {
    simulation = make_simulation(experiment, pool);
  }
  Measurer measurer(experiment, pool);
  SimulationResult result{.measurements = {},
                          .mean_model = model::Parameters(experiment.layout()),
                          .totals = {},
                          .trace = {},
                          .models = {}};
  const auto measure = [&] {
    Measurement measurement = measurer.measure(*simulation);
    measurement.wall_seconds = to_seconds(clock.now() - started);
    if (hooks.on_measurement) hooks.on_measurement(measurement);
    result.measurements.push_back(measurement);
  };
  measure();
  const double until = time_limit(options);
  const Totals& totals = simulation->totals();
  std::uint64_t next_measurement = 0;
  while (totals.step < options.run.steps && totals.virtual_seconds < until) {
    const std::uint64_t every = options.evaluate_every();
    next_measurement = std::min(options.run.steps, (totals.step / every + 1) * every);
    while (totals.step < next_measurement && totals.virtual_seconds < until) {
      const TimePoint before = clock.now();
      const std::uint64_t step = std::min(next_measurement, totals.step + stride(options));
      STARLING_TRY(simulation->advance(step, until));
      result.stepping_seconds += to_seconds(clock.now() - before);
      if (hooks.on_progress) hooks.on_progress(totals);
    }
    measure();
  }
  result.totals = totals;
  result.mean_model = measurer.mean_model();
  result.wall_seconds = to_seconds(clock.now() - started);
  result.models = measurer.models_digest();
  result.present = measurer.present();
  result.trace = std::move(measurer).trace();
  return result;
}

}  // namespace starling::gossip
