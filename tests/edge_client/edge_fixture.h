// SPDX-License-Identifier: Apache-2.0
// What the tests of the device's program share.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/client/client_machine.h"

namespace starling::testing {

// Without what is only for those who look for a fault.
class RecordingLog final : public Log {
 public:
  void write(LogLevel level, std::string_view line) override {
    if (level != LogLevel::kDebug) lines.emplace_back(line);
  }
  // How many lines hold `part`.
  std::size_t count(std::string_view part) const {
    std::size_t count = 0;
    for (const std::string& line : lines) count += line.find(part) != std::string::npos ? 1 : 0;
    return count;
  }

  std::vector<std::string> lines;
};

// Stands still unless it is set.
class FixedClock final : public Clock {
 public:
  explicit FixedClock(WallTime wall) : wall_(wall) {}
  TimePoint now() const override { return TimePoint(); }
  WallTime wall_now() const override { return wall_; }
  void set(WallTime wall) { wall_ = wall; }

 private:
  WallTime wall_;
};

inline client::PendingUpdate make_update(TaskId task, std::initializer_list<float> values) {
  Bytes bytes = to_bytes(as_bytes(std::span<const float>(values.begin(), values.size())));
  update::ContributionHead head{.task = task,
                                .base = {.run = RunId(1), .round = 2, .sha256 = sha256(bytes)},
                                .weight = 12,
                                .vectors = {{.name = "delta", .elements = values.size()}},
                                .scalars = {{"train_loss", 0.5}},
                                .payload_bytes = bytes.size(),
                                .payload_checksum = checksum(bytes)};
  return {std::move(head), SharedBytes::own(std::move(bytes))};
}

}  // namespace starling::testing
