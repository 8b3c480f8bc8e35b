// SPDX-License-Identifier: Apache-2.0
// What trains on a device: a trainer for each of its training threads.
#pragma once

#include <memory>
#include <vector>

#include "core/client/client_shell.h"
#include "core/client/local_trainer.h"

namespace starling::edge_client {

using Trainers = std::vector<std::unique_ptr<client::Trainer>>;  // by worker

// Built-in trainers on the device's data, each with scratch of its own.
Trainers make_builtin_trainers(const std::string& client, const client::ClientData& data,
                               int threads);

// Trains by the worker's trainer. `trainers` must outlive the function.
client::MakeUpdate train_with(const Trainers& trainers, const client::UpdateOptions& options);

}  // namespace starling::edge_client
