// SPDX-License-Identifier: Apache-2.0
// A log whose lines stand above a progress bar; from any thread.
#pragma once

#include <mutex>

#include "core/base/log.h"
#include "core/telemetry/progress.h"

namespace starling::telemetry {

class ProgressLog final : public Log {
 public:
  // `progress` must outlive it. A caller that uses both on several threads locks mutex() around the
  // bar.
  explicit ProgressLog(Progress& progress) : progress_(progress) {}

  void write(LogLevel, std::string_view line) override {
    const std::lock_guard lock(mutex_);
    progress_.print(line);
  }
  std::mutex& mutex() { return mutex_; }

 private:
  Progress& progress_;
  std::mutex mutex_;
};

}  // namespace starling::telemetry
