// SPDX-License-Identifier: Apache-2.0
// Custom trainers in a simulation (client/trainer_host.h): all clients share one process a
// worker.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/rounds/run_context.h"
#include "coordinator/simulation/federation_simulator.h"
#include "core/base/log.h"
#include "core/client/trainer_workers.h"

namespace starling::coordinator {

class SimulatedTrainers {
 public:
  // Starts one process and asks it what it can do for this job; the others start when they are
  // needed. `log` must outlive the trainers. Errors: those of TrainerHost::describe.
  [[nodiscard]] static Result<std::unique_ptr<SimulatedTrainers>> start(
      const Job& job, const strategy::Catalogue& strategies, const client::TrainerOptions& options,
      unsigned workers, Log& log);
  SimulatedTrainers(const SimulatedTrainers&) = delete;
  SimulatedTrainers& operator=(const SimulatedTrainers&) = delete;

  // In files of its own, or in memory.
  bool keeps_private_tensors() const { return keeps_private_tensors_; }
  // Both must not outlive this object.
  FederationSimulator::Options::Trainers trainers();
  // Nothing where the job has model.initial; without one, what the trainer makes of the job's seed.
  // "unsupported-operation" where it makes none.
  [[nodiscard]] Result<ExternalOrigin> initial_model(const Job& job);

 private:
  SimulatedTrainers(const Job& job, client::TrainerWorkers workers);

  std::string settings_;
  client::TrainerWorkers workers_;
  std::vector<std::string> abilities_;
  bool keeps_private_tensors_ = false;
};

}  // namespace starling::coordinator
