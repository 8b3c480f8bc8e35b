// SPDX-License-Identifier: Apache-2.0
// The log of make_stderr_log for a terminal, which would break wide lines within words and numbers.
#pragma once

#include <cstddef>
#include <memory>

#include "core/base/log.h"

namespace starling {

// Lines that are wider than `columns` are broken at blanks and go on two columns in.
std::unique_ptr<Log> make_terminal_log(LogLevel level, std::size_t columns);

}  // namespace starling
