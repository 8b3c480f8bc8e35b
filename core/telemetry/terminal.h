// SPDX-License-Identifier: Apache-2.0
// What the place that output goes to can show. Bars and colours are for terminals only; pipes and
// log files get plain lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace starling::telemetry {

struct Terminal {
  bool interactive = false;  // a terminal that can redraw a line
  bool colour = false;       // interactive, and NO_COLOR is unset (no-color.org)
  bool unicode = false;      // the locale's text is UTF-8
  int columns = 80;
  int rows = 24;
  // The widest line of text: the columns of a terminal, or those that COLUMNS says; what reads a
  // pipe gets lines as they are.
  std::size_t line_max = SIZE_MAX;
};

using Environment = std::function<const char*(const char* name)>;

// Of a file descriptor such as STDERR_FILENO. For main: `environment` is std::getenv there.
Terminal detect_terminal(int file_descriptor, const Environment& environment);

// The first `columns` characters of UTF-8 text, one column a character.
std::string_view fit(std::string_view text, std::size_t columns);

// Of a line of facts with two blanks between them, the first ones, as many as fit `columns`; always
// the first.
std::string_view leading_facts(std::string_view line, std::size_t columns);

}  // namespace starling::telemetry
