// SPDX-License-Identifier: Apache-2.0
// The rows that this device trains on and holds out, and how the rest of its memory is shared out.
#pragma once

#include "core/client/client_machine.h"
#include "core/client/local_trainer.h"
#include "edge_client/device_training.h"
#include "edge_client/edge_options.h"

namespace starling::edge_client {

// limits.memory in bytes.
std::uint64_t memory_bytes(const LimitOptions& limits);

// No rows where a custom trainer holds them. "setting-invalid" where the options name neither
// data nor a trainer, "partition-spec" where they name no part of it,
// and those of data::load_dataset.
[[nodiscard]] Result<client::ClientData> load_client_data(const EdgeOptions& options);

std::uint64_t bytes_of(const client::ClientData& data);

// "1234 rows of 28x28, 10 classes; 10% 12% ... of them in each class"
std::string summarize(const data::DatasetView& view);

// What the data leaves of limits.memory.
std::uint64_t bytes_beside(std::uint64_t data_bytes, const LimitOptions& limits);

// The largest model that can be trained beside the data, by a strategy without a state, while
// updates wait. "memory-too-small" where even 1 MB does not fit.
[[nodiscard]] Result<std::uint64_t> model_bytes_max(const LimitOptions& limits,
                                                    std::uint64_t data_bytes);

// The machine's options, its software named as "starling-edge VERSION".
[[nodiscard]] Result<client::ClientOptions> client_options(const EdgeOptions& options,
                                                           const DeviceTraining& training,
                                                           std::uint64_t data_bytes,
                                                           std::string_view version);

}  // namespace starling::edge_client
