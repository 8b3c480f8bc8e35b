// SPDX-License-Identifier: Apache-2.0
// What `run list` and `run show` print for people, out of the service's JSON.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "core/telemetry/terminal.h"

namespace starling::coordinator {

std::string describe_runs(const boost::json::value& runs, const telemetry::Terminal& terminal);

// Head, who can do it, settings, a line a round, why clients did not count, and the curve of the
// accuracy.
std::string describe_run(const boost::json::value& run, const telemetry::Terminal& terminal);

// "run 3 failed: ..."
std::string describe_end(const boost::json::value& run);

}  // namespace starling::coordinator
