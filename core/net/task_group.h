// SPDX-License-Identifier: Apache-2.0
// Owns the coroutines of a component, so that none outlives it. To stop: refuse, cancel, await.
#pragma once

#include <memory>

#include "core/net/event_loop.h"

namespace starling::net {

class TaskGroup {
 public:
  explicit TaskGroup(EventLoop& loop);
  // Requires: no task is running (see stop).
  ~TaskGroup();
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // Starts `task` in a later turn; drops it unstarted if the group refuses. An exception that
  // leaves a task is a bug and ends the process.
  void spawn(Async<void> task);

  void refuse();  // from now on spawn() drops
  void cancel();  // every wait of every task ends with "cancelled"
  // Resumes when no task is left. May itself be cancelled; the tasks then go on.
  Async<void> wait();
  // refuse, cancel, wait.
  Async<void> stop();

  std::size_t size() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace starling::net
