// SPDX-License-Identifier: Apache-2.0
// The lines of runs: into the store, where `run log` reads them, and into the service's log.
#pragma once

#include <functional>
#include <string>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/store/run_store.h"

namespace starling::coordinator {

class RunLog {
 public:
  using OnLine = std::function<void(const std::string& line)>;

  // All references must outlive the log. `on_line`: a run has this new line.
  RunLog(store::RunStore& store, const Clock& clock, Log& log, OnLine on_line)
      : store_(store), clock_(clock), log_(log), on_line_(std::move(on_line)) {}

  // Run 0: the service's log only. A line that cannot be stored is no reason to stop a run.
  void say(RunId run, const std::string& line) {
    if (run == RunId()) return log_.info("{}", line);
    log_.info("run {}: {}", run.value(), line);
    const auto stored = store_.append_log(run, std::span(&line, 1), clock_.wall_now());
    if (!stored) log_.warning("a line of the run's log is lost: {}", stored.error().message());
    on_line_(line);
  }

 private:
  store::RunStore& store_;
  const Clock& clock_;
  Log& log_;
  OnLine on_line_;
};

}  // namespace starling::coordinator
