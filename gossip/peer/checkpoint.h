// SPDX-License-Identifier: Apache-2.0
// What a peer keeps across restarts: its model and how far it was, as a safetensors file that every
// framework can read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/model/parameters.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip {

struct Checkpoint {
  std::string run;                  // of the roster; another run begins from its own initial model
  protocol::Exchange exchange = 0;  // to go on with
  std::vector<float> model;
};

// Whole or absent after a crash.
[[nodiscard]] Result<void> save_checkpoint(const std::filesystem::path& path,
                                           const Checkpoint& checkpoint,
                                           std::shared_ptr<const model::Layout> layout);
// "file-missing", "checkpoint-damaged", or those of model::load_safetensors.
[[nodiscard]] Result<Checkpoint> load_checkpoint(const std::filesystem::path& path,
                                                 std::shared_ptr<const model::Layout> layout);

}  // namespace starling::gossip
