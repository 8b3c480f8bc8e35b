// SPDX-License-Identifier: Apache-2.0
// The log of a run as it grows, and waiting for the run's end.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "coordinator/commands/commands.h"

namespace starling::coordinator {

struct FollowOptions {
  bool until_end = false;  // of the run
  bool only_new = false;   // lines from now on
  std::optional<TimePoint> deadline;
};

// `on_line` gets each line as JSON: {sequence, time, text}.
[[nodiscard]] Result<void> follow_log(
    OperatorClient& client, const std::string& run, const FollowOptions& options,
    const std::function<void(const boost::json::value&)>& on_line);

// Shows the lines as progress, then how the run ended. The exit code: 0 completed, 1 failed or
// stopped; the error "deadline" stands for 3.
[[nodiscard]] Result<int> wait_for_run(OperatorClient& client, const std::string& run,
                                       const FollowOptions& options, config::OutputFormat format,
                                       CommandContext& context);

}  // namespace starling::coordinator
