// SPDX-License-Identifier: Apache-2.0
#include "core/report/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/word_wrap.h"

namespace starling::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The bytes of the UTF-8 character that `text` begins with; 0 where it begins with none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  const std::size_t bytes = first < 0x80                    ? 1
                            : first >= 0xC2 && first < 0xE0 ? 2
                            : first >= 0xE0 && first < 0xF0 ? 3
                            : first >= 0xF0 && first < 0xF5 ? 4
                                                            : 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool outside = (first == 0xED && byte(1) >= 0xA0) || (first == 0xF4 && byte(1) >= 0x90);
  const bool not_a_character = first == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE;
  return overlong || outside || not_a_character ? 0 : bytes;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const char c = text.front();
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (c == '\'') {
      escaped += "&#39;";
    } else if (c == '\n' || c == '\t') {
      escaped += c;
    } else if (bytes == 0 || (bytes == 1 && (c < 0x20 || c == 0x7F))) {
      escaped += kReplacement;
    } else {
      escaped += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return escaped;
}

std::string escape_name(std::string_view name) {
  constexpr std::size_t kLongest = 40;  // what fits the window of a phone
  constexpr std::string_view kBetween = ", ";
  if (name.find(kBetween) == name.npos) return escape(name);
  std::string markup;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find(kBetween), name.size());
    const std::string_view part = name.substr(0, end);
    name.remove_prefix(end);
    const std::string_view comma = name.substr(0, 1);
    const bool whole = part.find_first_of(" -/") == part.npos || columns_of(part) > kLongest;
    markup += whole ? escape(part) + std::string(comma)
                    : fmt::format("<span class=\"part\">{}{}</span>", escape(part), comma);
    if (!name.empty()) markup += ' ';
    name.remove_prefix(std::min(kBetween.size(), name.size()));
  }
  return markup;
}

std::string units(double value) {
  const double tenths = std::round(value * 10);
  const auto whole = static_cast<std::int64_t>(tenths);
  if (whole % 10 == 0) return fmt::format("{}", whole / 10);
  return fmt::format("{:.1f}", tenths / 10);
}

std::string data_uri(std::string_view mime, std::string_view content) {
  static constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text = fmt::format("data:{};base64,", mime);
  text.reserve(text.size() + (content.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < content.size(); i += 3) {
    const std::size_t bytes = std::min<std::size_t>(3, content.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < bytes ? static_cast<unsigned char>(content[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= bytes ? kAlphabet[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

}  // namespace starling::report
