// SPDX-License-Identifier: Apache-2.0
// A program that the launcher runs: in a process group of its own, its output in a log file. It
// never outlives this object, nor the launcher itself, however that ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/subprocess.h"
#include "core/net/event_loop.h"

namespace starling::gossip {

using ChildEnd = ProcessEnd;

class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> arguments;  // the first is the program's path
    std::filesystem::path log;           // standard output and error are added to it
  };

  // Returns once the program has begun. "cannot-start" where it cannot be run or the log not be
  // written. `on_end` runs on the loop, once, in a later turn, and never after the destructor; it
  // may destroy this object. Call it from a thread that lives as long as the process is to
  // (subprocess.h).
  [[nodiscard]] static Result<std::unique_ptr<ChildProcess>> start(
      net::EventLoop& loop, const Options& options, std::function<void(ChildEnd)> on_end);
  // SIGKILL to its whole group if it still runs, and waits for it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // To its whole group; nothing once it has ended.
  void signal(int number) const;
  bool running() const;
  pid_t id() const;

 private:
  struct Impl;
  explicit ChildProcess(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace starling::gossip
