// SPDX-License-Identifier: Apache-2.0
#include "core/base/utf8.h"

#include "core/base/check.h"

namespace starling {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026

struct Lead {
  std::size_t bytes;                // of the whole character; 0: no character starts like this
  unsigned char second_min = 0x80;  // narrower where longer forms, surrogates or what lies beyond
  unsigned char second_max = 0xBF;  // U+10FFFF would begin
};

Lead lead_of(unsigned char first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {0};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {first < 0xF4 ? std::size_t{4} : 0};
}

// Bytes of the well-formed character that `text` starts with, or 0. Requires: not empty.
std::size_t character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(at(0));
  if (lead.bytes > text.size()) return 0;
  if (lead.bytes >= 2 && (at(1) < lead.second_min || at(1) > lead.second_max)) return 0;
  for (std::size_t i = 2; i < lead.bytes; ++i) {
    if (at(i) < 0x80 || at(i) > 0xBF) return 0;
  }
  return lead.bytes;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string clean_sentence(std::string_view text, std::size_t bytes_max) {
  STARLING_CHECK(bytes_max >= kEllipsis.size());
  std::string clean;
  std::size_t room_for_ellipsis = 0;  // where the text would be cut
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view character = bytes == 0 ? kReplacement : text.substr(0, bytes);
    if (clean.size() + character.size() > bytes_max) {
      return clean.substr(0, room_for_ellipsis).append(kEllipsis);
    }
    clean.append(character);
    if (clean.size() + kEllipsis.size() <= bytes_max) room_for_ellipsis = clean.size();
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return clean;
}

}  // namespace starling
