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

// The bytes of a character at the beginning of `text` that changes the order in which the rest of a
// line is shown: U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069 in UTF-8. 0: none.
std::size_t bidirectional_control(std::string_view text) {
  if (text.starts_with("\xD8\x9C")) return 2;
  if (text.size() < 3 || !text.starts_with("\xE2")) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  const auto third = static_cast<unsigned char>(text[2]);
  const bool mark = second == 0x80 && (third == 0x8E || third == 0x8F);
  const bool embedding = second == 0x80 && third >= 0xAA && third <= 0xAE;
  const bool isolate = second == 0x81 && third >= 0xA6 && third <= 0xA9;
  return mark || embedding || isolate ? 3 : 0;
}

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
    if (const std::size_t size = bidirectional_control(text.substr(i)); size > 0) {
      for (const char part : text.substr(i, size))
        clean += escaped(static_cast<unsigned char>(part));
      i += size - 1;
    } else if (byte == kLeadOfC1 && next >= kFirstOfC1 && next <= kLastOfC1) {
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
