// SPDX-License-Identifier: Apache-2.0
// Text from outside on its way to a log or a terminal, where an escape sequence or a new line could
// pretend to be something else.
#pragma once

#include <string>
#include <string_view>

namespace starling {

// Control characters (C0, DEL, and C1 in UTF-8) become \n, \r, \t or \xNN; the rest stays as it is.
std::string escape_controls(std::string_view text);

}  // namespace starling
