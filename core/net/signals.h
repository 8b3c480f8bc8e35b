// SPDX-License-Identifier: Apache-2.0
// SIGTERM, SIGINT and SIGHUP as events of the loop.
#pragma once

#include <functional>
#include <memory>

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

}  // namespace starling::net
