// SPDX-License-Identifier: Apache-2.0
// Hosts of tests/client/fake_trainer.py.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

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

}  // namespace starling::client
