// SPDX-License-Identifier: Apache-2.0
// The turns and the time of one process, as a shell sees them: the event loop of a service or
// device, or the virtual time of a simulation. All calls and callbacks are on its one thread.
#pragma once

#include <functional>
#include <memory>

#include "core/base/clock.h"

namespace starling {

// A one-shot timer. The scheduler must outlive it.
class Timer {
 public:
  virtual ~Timer() = default;
  // Replaces an earlier setting; a past time means the next turn. The callback may set it again.
  virtual void set(TimePoint when) = 0;
  virtual void clear() = 0;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  virtual TimePoint now() const = 0;
  // Runs `work` in a later turn, after everything that was posted before.
  virtual void post(std::function<void()> work) = 0;
  // `on_time` is called at most once for each set(), and never after clear() or the destructor.
  virtual std::unique_ptr<Timer> make_timer(std::function<void()> on_time) = 0;
};

}  // namespace starling
