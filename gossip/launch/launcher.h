// SPDX-License-Identifier: Apache-2.0
// A network of real `starling-edge` processes over mutual TLS on loopback, from its first
// certificate to its last model: the issuer of its roster, who breaks it by the script, and who
// gathers what it has learned. Leaves no process and no file behind.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/base/log.h"
#include "gossip/launch/launch_options.h"
#include "gossip/launch/peer_table.h"
#include "gossip/simulation/simulation.h"

namespace starling::gossip {

struct LaunchRequest {
  const Experiment& experiment;
  LaunchOptions options;
  FaultScript script;
  FaultSchedule::Links links;  // that are not good even when no event meets them
  bool proxied = false;        // required where there are events on links, or such links
  std::filesystem::path edge;  // the program of the peers
  std::filesystem::path logs;  // of the peers, a file each; empty: with their states, for the run
  unsigned threads = 1;        // for evaluations
};

struct LaunchHooks {
  std::function<void(const Measurement&)> on_measurement;
  std::function<void(std::span<const PeerRow>)> on_peers;  // several times a second
  std::function<void(const std::string& line)> on_line;    // what is done to the network
};

struct LaunchResult {
  SimulationResult result;
  std::optional<Error> unfinished;  // of whom it has no last model; see RunRecorder
};

// Runs to the end of the last step. Fails with "no-progress", "peer-ended" (a process that ended by
// itself; with the last line of its log), "interrupted" (SIGINT, SIGTERM, SIGHUP), and as its parts
// do. `log`: of the issuer.
[[nodiscard]] Result<LaunchResult> launch(const LaunchRequest& request, const Clock& clock,
                                          Log& log, const LaunchHooks& hooks);

}  // namespace starling::gossip
