// SPDX-License-Identifier: Apache-2.0
// The coordinator as a service: one port for devices, operators and those who join, one state
// directory, one machine. Puts the parts together; each of them is a file of its own.
#pragma once

#include <functional>
#include <memory>

#include "coordinator/service/coordinator_options.h"
#include "coordinator/service/state_directory.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/net/event_loop.h"

namespace starling::coordinator {

class CoordinatorService {
 public:
  // A failure of the disk that only a restart can mend: stop, and end with a failure.
  using OnBroken = std::function<void(const Error& error)>;

  // Recovers what an earlier process left, loads the run that was going on, listens. Fails with
  // "not-initialised", "state-in-use", "cannot-listen" and what the files say. All references must
  // outlive the service; what `on_broken` does must not destroy it at once.
  [[nodiscard]] static Result<std::unique_ptr<CoordinatorService>> start(
      net::EventLoop& loop, const Clock& clock, Log& log, const StateDirectory& state,
      const CoordinatorSettings& settings, OnBroken on_broken);
  // Requires: stop() has been awaited.
  ~CoordinatorService();
  CoordinatorService(const CoordinatorService&) = delete;
  CoordinatorService& operator=(const CoordinatorService&) = delete;

  std::uint16_t port() const;
  // New names and lifetimes, and a new certificate where one is due; what else differs from the
  // settings at the start is only said to need a restart.
  void reload(const CoordinatorSettings& settings);
  // Says goodbye to everybody and waits for a commit under way, as long as the settings allow.
  net::Async<void> stop();
  // Whether a computation goes on that the destructor would wait for.
  bool is_computing() const;

 private:
  struct Impl;
  explicit CoordinatorService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace starling::coordinator
