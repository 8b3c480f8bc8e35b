// SPDX-License-Identifier: Apache-2.0
// The one thread on which everything of the network runs: no strands, no mutexes. Computing
// happens elsewhere and comes back through post().
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/base/scheduler.h"
#include "core/net/async.h"

namespace boost::asio {
class io_context;
}

namespace starling::net {

struct BufferPools;

class EventLoop final : public Scheduler {
 public:
  EventLoop();
  // Requires: every Connection, Listener, TaskGroup and Alarm of this loop is gone.
  ~EventLoop() override;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs handlers until stop(); once stopped, later calls return at once.
  void run();
  // Any thread.
  void stop();
  // Any thread.
  void post(std::function<void()> work) override;
  // Runs the loop until `task` has ended: for commands and tests that do one thing. Requires:
  // nobody stops the loop meanwhile.
  void run_task(Async<void> task);

  TimePoint now() const override;
  // A net::Alarm.
  std::unique_ptr<Timer> make_timer(std::function<void()> on_time) override;
  boost::asio::io_context& context();
  BufferPools& buffers();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <class T>
Async<void> store_result(Async<T> task, std::optional<T>& result) {
  auto value = co_await std::move(task);
  result.emplace(std::move(value));
}

// The value of `task`, which the loop runs to its end.
template <class T>
T run_task(EventLoop& loop, Async<T> task) {
  std::optional<T> result;
  loop.run_task(store_result(std::move(task), result));
  return std::move(*result);
}

}  // namespace starling::net
