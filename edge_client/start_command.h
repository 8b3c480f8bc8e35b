// SPDX-License-Identifier: Apache-2.0
// `starling-edge start`, and the same within an application that brings its own trainer
// (examples/embedded_client): everything that a session needs, from the state directory to the
// data, and what ends it.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/client/trainer.h"
#include "core/client/trainer_messages.h"
#include "edge_client/edge_options.h"
#include "edge_client/state_directory.h"

namespace starling::edge_client {

// An application's trainer, called on one thread, which is not the caller's, for one task at a
// time. It takes part in runs of model.kind = "external".
struct OwnTrainer {
  client::Trainer* trainer = nullptr;  // must outlive the call; null: the options say what trains
  // What it can do, and its model's tensors: a layout of model::external_layout. With kGradient
  // its train() heeds its hooks, and full_gradient() and loss() are there; with kEvaluate
  // evaluate() is.
  client::TrainerDescription description = {};
};

struct StartRequest {
  StateDirectory state;
  EdgeOptions options;  // edge.toml is read by the caller
  std::string version;
  std::uint64_t backoff_seed = 0;  // from the system's randomness
  bool stops_on_hang_up = true;    // not under nohup
  OwnTrainer own = {};             // in place of options.data and options.trainer
  // Ends it as a signal does; asked from any thread, but not within a signal handler.
  std::stop_token stop = {};
  bool takes_signals = true;  // false: SIGTERM, SIGINT and SIGHUP are left to the application
};

// Runs until SIGTERM, SIGINT or `stop`: what is finished and not settled yet is offered again by
// the next start. Errors: "not-joined", "already-running", those of the options and the data, and
// of a disk that failed while it ran.
[[nodiscard]] Result<void> start(const StartRequest& request, const Clock& clock, Log& log);

}  // namespace starling::edge_client
