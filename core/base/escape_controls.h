// SPDX-License-Identifier: Apache-2.0
// Text from outside on its way to a log or a terminal, where an escape sequence or a new line could
// pretend to be something else.
#pragma once

#include <string>
#include <string_view>

namespace starling {

// Control characters (C0, DEL, and in UTF-8 C1 and those that turn the direction of text) become
// \n, \r, \t or \xNN, one a byte; the rest stays as it is.
std::string escape_controls(std::string_view text);

}  // namespace starling
