// SPDX-License-Identifier: Apache-2.0
#include "core/base/bytes.h"

#include <array>
#include <cstdio>

namespace starling {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kBase32Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int base32_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a';
  if (c >= '2' && c <= '7') return c - '2' + 26;
  return -1;
}

}  // namespace

std::string to_hex(ByteView bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    text.push_back(kHexDigits[std::to_integer<unsigned>(b) >> 4]);
    text.push_back(kHexDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return text;
}

Result<Bytes> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return rejected("not-hex", "a hexadecimal text needs an even length");
  Bytes bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_value(text[i]);
    const int low = hex_value(text[i + 1]);
    if (high < 0 || low < 0) return rejected("not-hex", "a hexadecimal text has 0-9 and a-f only");
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return bytes;
}

std::string to_base32(ByteView bytes) {
  std::string text;
  unsigned buffer = 0;
  int bits = 0;
  for (std::byte b : bytes) {
    buffer = (buffer << 8) | std::to_integer<unsigned>(b);
    for (bits += 8; bits >= 5; bits -= 5)
      text.push_back(kBase32Digits[(buffer >> (bits - 5)) & 31]);
  }
  if (bits > 0) text.push_back(kBase32Digits[(buffer << (5 - bits)) & 31]);
  return text;
}

Result<Bytes> from_base32(std::string_view text) {
  Bytes bytes;
  bytes.reserve(text.size() * 5 / 8);
  unsigned buffer = 0;
  int bits = 0;
  for (char c : text) {
    const int value = base32_value(c);
    if (value < 0) return rejected("not-base32", "a base32 text has A-Z and 2-7 only");
    buffer = (buffer << 5) | static_cast<unsigned>(value);
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<std::byte>((buffer >> bits) & 255));
    }
  }
  // Only one text per byte string: no spare digit, no spare bit.
  if (bits >= 5 || (buffer & ((1U << bits) - 1)) != 0) {
    return rejected("not-base32", "a base32 text ends in bits that belong to no byte");
  }
  return bytes;
}

std::string format_byte_count(std::uint64_t count) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(count);
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace starling
