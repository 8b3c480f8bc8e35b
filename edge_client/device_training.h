// SPDX-License-Identifier: Apache-2.0
// What trains on a device: a trainer for each of its training threads, or one of the owner's.
#pragma once

#include <memory>
#include <vector>

#include "core/client/client_shell.h"
#include "core/client/local_trainer.h"
#include "core/client/trainer_host.h"

namespace starling::edge_client {

using Trainers = std::vector<std::unique_ptr<client::Trainer>>;  // by worker

// Built-in trainers on the device's data, each with scratch of its own.
Trainers make_builtin_trainers(const std::string& client, const client::ClientData& data,
                               int threads);

// One, which is a program of its own: nothing but it trains on its device, one task at a time.
Trainers make_process_trainer(const std::string& client, std::unique_ptr<client::TrainerHost> host);

// Trains by the worker's trainer. `trainers` must outlive the function.
client::MakeUpdate train_with(const Trainers& trainers, const client::UpdateOptions& options);

}  // namespace starling::edge_client
