// SPDX-License-Identifier: Apache-2.0
// Hosts of tests/client/fake_trainer.py.
#pragma once

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/file_descriptor.h"
#include "core/client/trainer_host.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace starling::client {

class TrainerLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override {
    const std::lock_guard lock(mutex_);
    lines.emplace_back(line);
    if (on_line) on_line(line);
  }
  std::size_t count(std::string_view part) const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const std::string& line : lines) count += line.find(part) != line.npos ? 1 : 0;
    return count;
  }

  std::vector<std::string> lines;
  std::function<void(std::string_view)> on_line;

 private:
  mutable std::mutex mutex_;  // hosts of peers work on other threads
};

class FakeTrainer {
 public:
  // A mode of the script. No pauses between starts, and deadlines for a busy machine.
  explicit FakeTrainer(const std::string& mode) {
    const auto script = testing::source_root() / "tests" / "client" / "fake_trainer.py";
    options.trainer.command = {"python3", "-B", script.string(), mode, directory.path().string()};
    options.directory = directory.path() / "own";
    options.pause_min = Duration::zero();
  }
  TrainerHost& host() {
    if (!host_) host_ = std::make_unique<TrainerHost>(options, log);
    return *host_;
  }

  testing::TemporaryDirectory directory;  // named in every process of the trainer
  TrainerLog log;
  TrainerHost::Options options;
  std::atomic<bool> stop = false;

 private:
  std::unique_ptr<TrainerHost> host_;
};

inline bool ends(pid_t id) {
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, id, 0)));
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  return process.get() < 0 || ::poll(&ended, 1, 30'000) == 1;
}

// Whether all processes end that have this path among their arguments.
inline ::testing::AssertionResult all_have_ended(const std::filesystem::path& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::ostringstream arguments;
    arguments << std::ifstream(entry.path() / "cmdline").rdbuf();
    if (arguments.str().find(path.string()) == std::string::npos) continue;
    if (!ends(std::stoi(name))) {
      return ::testing::AssertionFailure() << "process " << name << " still runs";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace starling::client
