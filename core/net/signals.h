// SPDX-License-Identifier: Apache-2.0
// SIGTERM, SIGINT and SIGHUP as events of the loop.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "core/net/event_loop.h"

namespace starling::net {

enum class Signal { kTerminate, kInterrupt, kHangUp };

class SignalWatcher {
 public:
  // `on_signal` runs on the loop for each signal. One watcher per process; the loop must outlive
  // it. When it is destroyed the signals have their default effect again.
  SignalWatcher(EventLoop& loop, std::function<void(Signal)> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// The same on a thread of its own, for a process whose main thread may be waiting elsewhere than in
// a loop.
class SignalThread {
 public:
  // `on_signal` runs on that thread.
  explicit SignalThread(std::function<void(Signal)> on_signal);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  EventLoop loop_;
  SignalWatcher watcher_;
  std::thread thread_;
};

}  // namespace starling::net
