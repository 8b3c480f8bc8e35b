// SPDX-License-Identifier: Apache-2.0
// What trains on a device: the built-in trainers on its data, a program of the owner's, or what an
// application brings. Three ways to one value.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/client/client_shell.h"
#include "core/client/local_trainer.h"
#include "core/client/trainer_host.h"

namespace starling::edge_client {

using Trainers = std::vector<std::unique_ptr<client::Trainer>>;  // by worker

// With what the greeting says of it.
struct DeviceTraining {
  Trainers trainers;
  std::shared_ptr<client::TrainerHost> program = {};  // of the trainer; null: not one
  std::vector<std::string> abilities;                 // see core/client/abilities.h
  std::uint64_t rows = 0;                             // 0: not said
  std::uint64_t held_out = 0;
  std::vector<std::uint32_t> input = {};  // shape of a row; empty: not said
  std::uint32_t classes = 0;
};

// Built-in trainers on the device's data, each with scratch of its own.
DeviceTraining train_on_data(const std::string& client, const client::ClientData& data,
                             int threads);

// Starts a program and asks it what it does: one trainer, as nothing but it trains on its device.
// One that cannot say so without the settings of a run is taken to train. Errors: those of
// client::TrainerHost; "stopped" where `stop` became true meanwhile. `log` must outlive the result.
[[nodiscard]] Result<DeviceTraining> train_by_program(client::TrainerHost::Options options,
                                                      const std::atomic<bool>& stop, Log& log);

// One trainer, held to its description. `trainer` must outlive the result.
DeviceTraining train_by_application(client::Trainer& trainer,
                                    const client::TrainerDescription& description);

// Trains by the worker's trainer. `trainers` must outlive the function.
client::MakeUpdate train_with(const Trainers& trainers, const client::UpdateOptions& options);

}  // namespace starling::edge_client
