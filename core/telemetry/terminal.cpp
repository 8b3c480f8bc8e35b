// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>

namespace starling::telemetry {
namespace {

constexpr int kColumnsMin = 20;
constexpr int kColumnsMax = 1000;

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

int columns_wide(int file_descriptor, const Environment& environment) {
  winsize size{};
  int columns = 0;
  if (::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  const std::string_view told = value_of(environment, "COLUMNS");
  if (columns == 0) std::from_chars(told.data(), told.data() + told.size(), columns);
  return columns < kColumnsMin || columns > kColumnsMax ? 80 : columns;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

Terminal detect_terminal(int file_descriptor, const Environment& environment) {
  Terminal terminal;
  terminal.unicode = has_unicode(environment);
  terminal.columns = columns_wide(file_descriptor, environment);
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

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (char c : text) columns += continues_character(c) ? 0 : 1;
  return columns;
}

}  // namespace starling::telemetry
