// SPDX-License-Identifier: Apache-2.0
// The page about one run, or about several beside each other.
#pragma once

#include <span>
#include <string>

#include "core/report/run.h"

namespace starling::report {

// report.html of one run: its charts, its topology, its settings and its numbers in full. Of
// several: a series a run in each chart, named by what differs between them, and a table of what it
// cost each to reach the accuracy that all reached; runs that differ only in their seed are one, as
// their mean with a band. Requires: at least one run.
std::string render_report(std::span<const Run> runs, std::span<const LeftOut> left_out = {});

}  // namespace starling::report
