// SPDX-License-Identifier: Apache-2.0
// Commands that are printed for people to copy.
#pragma once

#include <string>
#include <string_view>

namespace starling {

// The text as one word of a POSIX shell: itself where no character of it means anything to a shell,
// else in single quotes.
std::string shell_word(std::string_view text);

}  // namespace starling
