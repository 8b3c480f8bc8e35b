// SPDX-License-Identifier: Apache-2.0
// "did you mean ...": the known name that a mistyped one is closest to.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace starling {

// The fewest insertions, deletions, substitutions and swaps of neighbours that turn one into the
// other (optimal string alignment). Names longer than 256 bytes are compared by their beginning.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The first of the nearest, or empty where nothing is near enough to be what was meant (more than a
// third of the letters differ).
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known);

// "; did you mean 'x'?" or nothing.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

// "a, b and c"
std::string join_names(std::span<const std::string_view> names, std::string_view last = "and");

// Text of unknown origin for one line of a message: control bytes as '?', and after at most
// `bytes_max` bytes, at the end of a character of UTF-8, "..." for the rest.
std::string printable(std::string_view text, std::size_t bytes_max = 64);

}  // namespace starling
