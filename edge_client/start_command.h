// SPDX-License-Identifier: Apache-2.0
// `starling-edge start`: everything that a session needs, from the state directory to the data, and
// the signals that end it.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "edge_client/edge_options.h"
#include "edge_client/state_directory.h"

namespace starling::edge_client {

struct StartRequest {
  StateDirectory state;
  EdgeOptions options;
  std::string version;
  std::uint64_t backoff_seed = 0;  // from the system's randomness
  bool stops_on_hang_up = true;    // not under nohup
};

// Runs until SIGTERM or SIGINT. Errors: "not-joined", "already-running", those of the options and
// the data, and of a disk that failed while it ran.
[[nodiscard]] Result<void> start(const StartRequest& request, const Clock& clock, Log& log);

}  // namespace starling::edge_client
