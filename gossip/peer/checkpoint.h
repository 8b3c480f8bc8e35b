// SPDX-License-Identifier: Apache-2.0
// What a peer keeps across restarts: its model and how far it was, as a safetensors file that every
// framework can read, and beside it what else its algorithm goes on with. The state of the local
// optimizer (momentum, Adam's moments) is not kept: it grows anew within some steps.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/disk.h"
#include "core/model/parameters.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip {

// Of algorithms/algorithm_state.h.
struct KeptState {
  std::string algorithm;
  protocol::Epoch epoch = 0;
  Bytes bytes;

  friend bool operator==(const KeptState&, const KeptState&) = default;
};

struct Checkpoint {
  std::string run;                  // Roster::run_identity(); another run begins from its own model
  protocol::Exchange exchange = 0;  // to go on with
  std::vector<float> model;
  KeptState state = {};
  protocol::Support support = {};  // a majority's model takes the place of a minority's

  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// CHECKPOINT.safetensors, and CHECKPOINT.state that goes with it. Whenever the process is killed,
// the power is cut or the disk is full, either the former pair or the new one can be loaded: until
// the new model is in place, its state is in CHECKPOINT.state.new, beside the former state. A file
// of that name that an earlier call left is used or removed. Errors are those of Disk; on failure,
// too, a whole pair can be loaded. Requires: `path` names a directory.
[[nodiscard]] Result<void> save_checkpoint(Disk& disk, const std::filesystem::path& path,
                                           const Checkpoint& checkpoint,
                                           const std::shared_ptr<const model::Layout>& layout);
// All files that save_checkpoint() may leave, except temporaries (sweep_temporaries()). The model
// is the first: without it, the others are not used.
[[nodiscard]] std::vector<std::filesystem::path> checkpoint_files(
    const std::filesystem::path& path);
// The model alone, without what depends on how long something took.
[[nodiscard]] Result<void> save_model(Disk& disk, const std::filesystem::path& path,
                                      Checkpoint checkpoint,
                                      const std::shared_ptr<const model::Layout>& layout);
// Without the state. "file-missing", "checkpoint-damaged", or those of model::load_safetensors.
[[nodiscard]] Result<Checkpoint> load_checkpoint(Disk& disk, const std::filesystem::path& path,
                                                 std::shared_ptr<const model::Layout> layout);
// What was kept with this very model, in either of the two files: "file-missing", "state-damaged",
// "state-version", "state-other" (of another moment than the model, or another algorithm), or those
// of Disk.
[[nodiscard]] Result<KeptState> load_state(Disk& disk, const std::filesystem::path& path,
                                           const Checkpoint& checkpoint,
                                           const std::string& algorithm);

}  // namespace starling::gossip
