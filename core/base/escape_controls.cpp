// SPDX-License-Identifier: Apache-2.0
#include "core/base/escape_controls.h"

#include <fmt/format.h>

namespace starling {
namespace {

constexpr unsigned char kLastOfC0 = 0x1F;
constexpr unsigned char kDelete = 0x7F;
// U+0080 to U+009F begin with this byte in UTF-8; terminals take them as escape sequences.
constexpr unsigned char kLeadOfC1 = 0xC2;
constexpr unsigned char kFirstOfC1 = 0x80;
constexpr unsigned char kLastOfC1 = 0x9F;

std::string escaped(unsigned char control) {
  switch (control) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\x{:02x}", control);
  }
}

}  // namespace

std::string escape_controls(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == kLeadOfC1 && next >= kFirstOfC1 && next <= kLastOfC1) {
      clean += escaped(next);
      ++i;
    } else if (byte <= kLastOfC0 || byte == kDelete) {
      clean += escaped(byte);
    } else {
      clean += text[i];
    }
  }
  return clean;
}

}  // namespace starling
