// SPDX-License-Identifier: Apache-2.0
// How failures are detected: how often members are probed, how long they are waited for and how
// long they may defend themselves. The defaults suit 2 to 1000 members on a LAN or a WAN.
#pragma once

#include <cstddef>

#include "core/base/clock.h"
#include "core/base/error.h"

namespace starling::gossip::membership {

struct SwimOptions {
  // Between two probes of one's own.
  Duration probe_period = std::chrono::seconds(1);
  // Of the time to answer, before others are asked to try: RFC 6298's over the measured round
  // trips, within [min, max]; `first` while nothing is measured. Requires: min <= first <= max.
  Duration probe_timeout_min = std::chrono::milliseconds(100);
  Duration probe_timeout_first = std::chrono::milliseconds(500);
  Duration probe_timeout_max = std::chrono::seconds(2);
  std::size_t indirect_probes = 3;  // k: who is asked to try, >= 0
  // A suspect is dead after suspicion_min_factor * max(1, log10(n)) * probe_period (S_min) if
  // `confirmations` others found the same, after suspicion_max_factor times that (S_max) if none.
  double suspicion_min_factor = 4;  // >= 1
  double suspicion_max_factor = 6;  // >= 1
  std::size_t confirmations = 3;    // K; at most n - 2 are waited for
  // Each news is sent at most ceil(dissemination * ln(n + 1)) times by each member that holds it.
  double dissemination = 3;   // lambda, > 0
  std::size_t news_max = 20;  // in one message, one's own included: 3 to 64
  // On average, between two probes of dead members while these do not answer.
  Duration dead_probe_period = std::chrono::seconds(2);
  // Who notices troubles of its own takes up to (1 + health_max) times as long for its probes.
  unsigned health_max = 4;
  // Called so much later than it had asked for, the machine takes it that its process did not run.
  Duration late_min = std::chrono::milliseconds(500);
};

// Fails with "bad-swim-option".
[[nodiscard]] Result<void> validate(const SwimOptions& options);

}  // namespace starling::gossip::membership
