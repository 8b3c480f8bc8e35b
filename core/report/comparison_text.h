// SPDX-License-Identifier: Apache-2.0
// The table of several runs for a terminal; runs that differ only in their seed are one row.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/report/run.h"

namespace starling::report {

// Lines of at most `columns`; SIZE_MAX: a line for each row, no wider than its cells need where
// that is more than 80. Requires: at least one run.
std::string comparison_text(std::span<const Run> runs, std::size_t columns);

}  // namespace starling::report
