// SPDX-License-Identifier: Apache-2.0
// The page about several runs: what all share on top, then what sets them apart.
#pragma once

#include <span>
#include <string>

#include "core/report/run.h"

namespace starling::report {

// Requires: at least two runs.
std::string render_several(std::span<const Run> runs);

}  // namespace starling::report
