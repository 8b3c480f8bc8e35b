// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>

#include "core/base/word_wrap.h"

namespace starling::telemetry {
namespace {

struct SizeRange {
  int min;
  int max;
  int otherwise;
};
constexpr SizeRange kColumns = {20, 1000, 80};
constexpr SizeRange kRows = {5, 1000, 24};

std::string_view value_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// POSIX: the first of these that is set and not empty decides.
bool has_unicode(const Environment& environment) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view locale = value_of(environment, name);
    if (locale.empty()) continue;
    for (const char* charset : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (locale.find(charset) != locale.npos) return true;
    }
    return false;
  }
  return false;
}

// What the terminal says, else the environment.
int extent(int told_by_terminal, const char* variable, const SizeRange& range,
           const Environment& environment) {
  int extent = told_by_terminal;
  const std::string_view told = value_of(environment, variable);
  if (extent == 0) std::from_chars(told.data(), told.data() + told.size(), extent);
  return extent < range.min || extent > range.max ? range.otherwise : extent;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

Terminal detect_terminal(int file_descriptor, const Environment& environment) {
  Terminal terminal;
  terminal.unicode = has_unicode(environment);
  winsize size{};
  if (::ioctl(file_descriptor, TIOCGWINSZ, &size) != 0) size = {};
  terminal.columns = extent(size.ws_col, "COLUMNS", kColumns, environment);
  if (::isatty(file_descriptor) == 1 || !value_of(environment, "COLUMNS").empty()) {
    terminal.line_max = static_cast<std::size_t>(terminal.columns);
  }
  terminal.rows = extent(size.ws_row, "LINES", kRows, environment);
  terminal.interactive = ::isatty(file_descriptor) == 1 && value_of(environment, "TERM") != "dumb";
  terminal.colour = terminal.interactive && value_of(environment, "NO_COLOR").empty();
  return terminal;
}

std::string_view fit(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0;
  for (; bytes < text.size(); ++bytes) {
    if (continues_character(text[bytes])) continue;
    if (columns == 0) break;
    --columns;
  }
  return text.substr(0, bytes);
}

std::string_view leading_facts(std::string_view line, std::size_t columns) {
  while (columns_of(line) > columns) {
    const std::size_t last = line.rfind("  ");
    if (last == line.npos) break;
    line = line.substr(0, last);
  }
  return line;
}

}  // namespace starling::telemetry
