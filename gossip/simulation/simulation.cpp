// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/archive_file.h"
#include "core/base/check.h"
#include "gossip/simulation/protocol_simulation.h"

namespace starling::gossip {
namespace {

// Of virtual time, infinite where the user set no limit.
double time_limit(const NetOptions& options) {
  if (options.run.virtual_time == Duration::zero()) return std::numeric_limits<double>::infinity();
  return to_seconds(options.run.virtual_time);
}

// A progress bar wants to move some fifty times a run.
std::uint64_t stride_of(const NetOptions& options) {
  return std::max<std::uint64_t>(1, std::min(options.run.steps / 50, options.evaluate_every()));
}

bool discards(NetworkSimulation& simulation) {
  Archive archive([](ByteView) {});
  return simulation.archive(archive);
}

Error stopped(std::uint64_t step, bool saved) {
  return rejected(
      "stopped",
      saved ? fmt::format("stopped after step {}: the same command goes on from there", step)
            : fmt::format("stopped after step {}: this kind of run cannot be "
                          "continued, and the same command begins again",
                          step));
}

// A run from its first measurement, or from its checkpoint, to its end.
class SimulatedRun {
 public:
  SimulatedRun(const Experiment& experiment, ComputePool& pool, const Clock& clock,
               const SimulationHooks& hooks, std::unique_ptr<NetworkSimulation> simulation)
      : options_(experiment.options),
        clock_(clock),
        hooks_(hooks),
        started_(clock.now()),
        simulation_(std::move(simulation)),
        measurer_(experiment, pool) {}

  Result<void> run() {
    STARLING_ASSIGN(const bool resumed, resume());
    if (!resumed) measure();
    const double until = time_limit(options_);
    const Totals& totals = simulation_->totals();
    while (totals.step < options_.run.steps && totals.virtual_seconds < until) {
      const std::uint64_t every = options_.evaluate_every();
      const std::uint64_t next = std::min(options_.run.steps, (totals.step / every + 1) * every);
      while (totals.step < next && totals.virtual_seconds < until) {
        STARLING_TRY(save_if_wanted());
        STARLING_TRY(advance(next, until));
      }
      measure();
    }
    return {};
  }

  SimulationResult result() && {
    return {.measurements = std::move(measurements_),
            .mean_model = measurer_.mean_model(),
            .totals = simulation_->totals(),
            .wall_seconds = wall_seconds(),
            .stepping_seconds = stepping_seconds_,
            .trace = measurer_.trace(),
            .models = measurer_.models_digest(),
            .present = measurer_.present()};
  }

 private:
  double wall_seconds() const { return wall_before_ + to_seconds(clock_.now() - started_); }

  void measure() {
    Measurement measurement = measurer_.measure(*simulation_);
    measurement.wall_seconds = wall_seconds();
    if (hooks_.on_measurement) hooks_.on_measurement(measurement);
    measurements_.push_back(std::move(measurement));
  }

  // Step by step where somebody may want a checkpoint in between.
  Result<void> advance(std::uint64_t next, double until) {
    const Totals& totals = simulation_->totals();
    const std::uint64_t stride = stride_of(options_);
    const TimePoint before = last_look_ = clock_.now();
    const std::uint64_t target = totals.step + (can_save_ ? 1 : stride);
    STARLING_TRY(simulation_->advance(std::min(next, target), until));
    last_look_ = clock_.now();
    stepping_seconds_ += to_seconds(last_look_ - before);
    if (totals.step < next_progress_ && totals.step < next) return {};
    next_progress_ = totals.step + stride;
    if (hooks_.on_progress) hooks_.on_progress(totals);
    return {};
  }

  bool archive(Archive& state) {
    measurements_.resize(state.count(measurements_.size(), sizeof(double)));
    for (Measurement& measurement : measurements_) measurement.archive(state);
    double wall = wall_seconds();
    state(wall);
    if (state.reading()) wall_before_ = wall;
    state(stepping_seconds_);
    measurer_.archive(state);
    return simulation_->archive(state);
  }

  // Whether there was a checkpoint to go on from.
  Result<bool> resume() {
    if (!hooks_.checkpoints || !can_save_) return false;
    const auto loaded = load_archive(hooks_.checkpoints->file, hooks_.checkpoints->identity,
                                     [&](Archive& state) { archive(state); });
    if (!loaded && loaded.error().code() == "file-missing") return false;
    if (!loaded) {
      const Error& error = loaded.error();
      return error.with_message(fmt::format("{}; remove {} to begin again", error.message(),
                                            hooks_.checkpoints->file.string()));
    }
    if (hooks_.on_resume) hooks_.on_resume(simulation_->totals().step);
    if (hooks_.on_measurement) {
      for (const Measurement& measurement : measurements_) hooks_.on_measurement(measurement);
    }
    return true;
  }

  Result<void> save_if_wanted() {
    if (!hooks_.checkpoints) return {};
    const SimulationCheckpoints& checkpoints = *hooks_.checkpoints;
    const SaveNow now = checkpoints.now(last_look_);
    if (now == SaveNow::kNothing) return {};
    if (can_save_) {
      const TimePoint before = clock_.now();
      auto saved = save_archive(checkpoints.file, checkpoints.identity,
                                [&](Archive& state) { archive(state); });
      // What failed ahead of its time fails by itself when it is due.
      const bool is_passing = !saved && saved.error().code() == "state-incomplete";
      if (!saved && !(is_passing && now == SaveNow::kSave)) return saved;
      last_look_ = clock_.now();
      if (checkpoints.saved) checkpoints.saved(last_look_ - before);
    }
    if (now == SaveNow::kSave) return {};
    return stopped(simulation_->totals().step, can_save_);
  }

  const NetOptions& options_;
  const Clock& clock_;
  const SimulationHooks& hooks_;
  const TimePoint started_;
  std::unique_ptr<NetworkSimulation> simulation_;
  Measurer measurer_;
  const bool can_save_ = hooks_.checkpoints && discards(*simulation_);
  std::vector<Measurement> measurements_;
  double wall_before_ = 0;  // of the processes before
  double stepping_seconds_ = 0;
  std::uint64_t next_progress_ = 0;
  TimePoint last_look_ = started_;  // at the clock
};

}  // namespace

Result<SimulationResult> simulate(const Experiment& experiment, unsigned threads,
                                  const Clock& clock, const SimulationHooks& hooks,
                                  Simulated simulated) {
  ComputePool pool(threads);
  std::unique_ptr<NetworkSimulation> simulation;
  if (simulated == Simulated::kPeers) {
    STARLING_ASSIGN(simulation, make_protocol_simulation(experiment, pool));
  } else {
    STARLING_CHECK(experiment.plan.traits.loss_safe || !experiment.lossy());
    simulation = make_simulation(experiment, pool);
  }
  SimulatedRun run(experiment, pool, clock, hooks, std::move(simulation));
  STARLING_TRY(run.run());
  return std::move(run).result();
}

}  // namespace starling::gossip
