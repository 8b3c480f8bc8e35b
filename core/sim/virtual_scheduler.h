// SPDX-License-Identifier: Apache-2.0
// The turns of all simulated processes in one virtual time: what happens next is the earliest
// event, and of equals the one scheduled first.
#pragma once

#include "core/base/scheduler.h"
#include "core/sim/event_queue.h"

namespace starling::sim {

class VirtualScheduler final : public Scheduler {
 public:
  TimePoint now() const override { return queue_.now(); }
  void post(std::function<void()> work) override { schedule(now(), std::move(work)); }
  std::unique_ptr<Timer> make_timer(std::function<void()> on_time) override;

  void schedule(TimePoint time, std::function<void()> work) {
    queue_.schedule(time, std::move(work));
  }
  // Moves the time to the next event and runs it; false where there is none.
  bool run_one();

 private:
  EventQueue<std::function<void()>> queue_;
};

}  // namespace starling::sim
