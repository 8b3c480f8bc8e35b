// SPDX-License-Identifier: Apache-2.0
// `starling-edge roster [FILE]`: the owner brings a roster that was signed offline, or asks which
// one the device holds.
#pragma once

#include <filesystem>
#include <iosfwd>

#include "core/base/clock.h"
#include "core/config/command_line.h"
#include "edge_client/state_directory.h"
#include "gossip/peer/held_roster.h"

namespace starling::edge_client {

// Holds the roster in `file` from now on, where it is signed by who may issue rosters here, is
// current, names this device and is newer than the one that is held; that very one again is fine.
// Beyond the errors of gossip::verify_roster: "not-joined", "already-running", "file-missing",
// "roster-expired", "roster-older", "not-a-member". On failure all is as before.
[[nodiscard]] Result<identity::SignedRoster> install_roster(const std::filesystem::path& file,
                                                            const StateDirectory& state,
                                                            WallTime now);

// Prints what the roster is, installed where there is a `file`; returns the exit code.
int roster(const std::filesystem::path& file, const StateDirectory& state, WallTime now,
           config::OutputFormat format, std::ostream& out, std::ostream& err);

}  // namespace starling::edge_client
