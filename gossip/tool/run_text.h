// SPDX-License-Identifier: Apache-2.0
// What `simulate` and `launch` print of a run.
#pragma once

#include <boost/json/object.hpp>
#include <iosfwd>
#include <string>
#include <string_view>

#include "core/telemetry/terminal.h"
#include "gossip/simulation/simulation.h"

namespace starling::gossip {

// A line about one evaluation, what matters most first (see telemetry::leading_facts). `time`: what
// follows the seconds, " virtual" or nothing.
std::string describe(const Measurement& measurement, std::uint64_t steps, std::uint64_t nodes,
                     std::string_view time);

struct SummaryOptions {
  std::uint32_t nodes = 0;
  std::string_view time;  // " of virtual time"
  unsigned threads = 1;
  std::string_view out;  // empty: nothing was written
  telemetry::Terminal terminal;
};
// The curve and the totals.
void print_summary(const SimulationResult& result, const SummaryOptions& options,
                   std::ostream& out);

boost::json::object result_to_json(const SimulationResult& result);

}  // namespace starling::gossip
