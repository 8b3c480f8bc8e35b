// SPDX-License-Identifier: Apache-2.0
// Text for a terminal: how wide it is, and where it may be broken.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace starling {

// How many columns UTF-8 text takes, one a character.
std::size_t columns_of(std::string_view text);

// The text in lines of at most `columns`, broken at blanks, which the break takes the place of. A
// word that is wider stands on a line of its own. At least one line.
std::vector<std::string> break_at_blanks(std::string_view text, std::size_t columns);

// The same as one text, in which the lines after the first begin with two blanks. Of the first line
// `taken` columns are taken already.
std::string wrap(std::string_view text, std::size_t columns, std::size_t taken = 0);

// `label` and the text beside it, in which each later line begins where the first one does.
std::string wrap_beside(std::string_view label, std::string_view text, std::size_t columns);

}  // namespace starling
