// SPDX-License-Identifier: Apache-2.0
// How long the sessions of a run wait for members that were never heard: they may be starting, as
// long as the run itself is. Later on no epoch waits longer for them than twice a local phase.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "core/base/clock.h"

namespace starling::gossip {

class StartPatience {
 public:
  // A session of this run begins. `max`: at the start of the run in this process. `min`: beside two
  // local phases, later on.
  Duration begin_session(const std::string& run_id, Duration min, Duration max, TimePoint now) {
    if (!run_ || run_->id != run_id) run_ = Run{.id = run_id, .began = now};
    const Duration left = max - (now - run_->began);
    return std::min(max, std::max(left, min + 2 * run_->computing_max));
  }
  // What was computed took so long. Requires: a session has begun.
  void computed(Duration took) { run_->computing_max = std::max(run_->computing_max, took); }
  // The next session starts its run.
  void restart() { run_.reset(); }

 private:
  struct Run {
    std::string id;
    TimePoint began{};
    Duration computing_max{};
  };
  std::optional<Run> run_;
};

}  // namespace starling::gossip
