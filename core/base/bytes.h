// SPDX-License-Identifier: Apache-2.0
// Views of bytes and their textual forms. Everything on disk and on the wire is little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace starling {

static_assert(std::endian::native == std::endian::little,
              "tensors travel and are stored as the machine holds them: little-endian float32");

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;
using MutableByteView = std::span<std::byte>;

inline ByteView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline ByteView as_bytes(std::span<const float> values) { return std::as_bytes(values); }
inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes to_bytes(ByteView view) { return {view.begin(), view.end()}; }

template <class Integer>
Integer load_little(const std::byte* from) {
  Integer value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class Integer>
void store_little(std::byte* to, Integer value) {
  std::memcpy(to, &value, sizeof value);
}

std::string to_hex(ByteView bytes);
[[nodiscard]] Result<Bytes> from_hex(std::string_view text);

// RFC 4648 base32 without padding, upper case; decoding also takes lower case.
std::string to_base32(ByteView bytes);
[[nodiscard]] Result<Bytes> from_base32(std::string_view text);

// "4.8 MB", with powers of 1000 as in the round lines that people read.
std::string format_byte_count(std::uint64_t count);

}  // namespace starling
