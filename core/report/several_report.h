// SPDX-License-Identifier: Apache-2.0
// The page about several runs: what all share on top, then what sets them apart.
#pragma once

#include <span>
#include <string>

#include "core/report/page.h"
#include "core/report/run.h"

namespace starling::report {

// A section that names those that have begun; none where there are none.
void add_left_out(Page& page, std::span<const LeftOut> left_out);
// A line with the number of those that have not, where there are any: a study may have hundreds.
void add_not_begun(Page& page, std::span<const LeftOut> left_out);

// How many of a study's runs have finished, where some have not; else "".
std::string finished_of(std::span<const Run> shown, std::span<const LeftOut> left_out);

// Requires: at least two runs.
std::string render_several(std::span<const Run> runs, std::span<const LeftOut> left_out = {});

}  // namespace starling::report
