// SPDX-License-Identifier: Apache-2.0
// One timer that calls back: what a shell sets to its machine's next deadline.
#pragma once

#include <functional>
#include <memory>

#include "core/base/clock.h"
#include "core/net/event_loop.h"

namespace starling::net {

class Alarm final : public Timer {
 public:
  // `on_time` runs on the loop, at most once for each set(), and never after clear() or the
  // destructor. It may set the alarm again. The loop must outlive the alarm.
  Alarm(EventLoop& loop, std::function<void()> on_time);
  ~Alarm() override;
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  void set(TimePoint when) override;
  void clear() override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Resumes at `when`; false if the task was cancelled before.
Async<bool> sleep_until(EventLoop& loop, TimePoint when);

}  // namespace starling::net
