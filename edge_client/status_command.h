// SPDX-License-Identifier: Apache-2.0
// `starling-edge status`: whether a process runs on the state directory, and what it is doing.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "core/base/clock.h"
#include "core/config/command_line.h"
#include "edge_client/state_directory.h"

namespace starling::edge_client {

// Prints, in lines of at most `columns`; 0 where the directory holds an identity, whether or not a
// process runs.
int status(const StateDirectory& state, WallTime now, config::OutputFormat format,
           std::ostream& out, std::ostream& err, std::size_t columns = SIZE_MAX);

}  // namespace starling::edge_client
