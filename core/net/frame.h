// SPDX-License-Identifier: Apache-2.0
// A frame is the unit on every Starling connection: a head of 8 bytes (u32 payload bytes, u16
// header words of 8 bytes, u16 type; little-endian), the header message, then raw payload. What the
// head announces is checked against what the session expects before any memory is taken.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/bytes.h"
#include "core/base/error.h"

namespace starling::net {

inline constexpr std::size_t kHeadBytes = 8;
inline constexpr std::uint32_t kHeaderWordsMax = 8192;  // 64 KiB
inline constexpr std::uint32_t kPayloadBytesMax = 64 * 1024;
// Type 0 belongs to this library: an empty frame with which an accepting side says that the other
// side's certificate is good. Users of a connection never see it.
inline constexpr std::uint16_t kReadyFrame = 0;

// A received frame; `header` and `payload` are aligned to 64 bytes.
struct Frame {
  std::uint16_t type = 0;
  ByteView header;  // a multiple of 8 bytes
  ByteView payload;
};

struct FrameBound {
  std::uint32_t header_words_max = 0;
  std::uint32_t payload_bytes_max = 0;
};

class FrameLimits {
 public:
  virtual ~FrameLimits() = default;
  // What a frame of `type` may hold in the session's present state; none: it is not expected.
  virtual std::optional<FrameBound> bound(std::uint16_t type) const = 0;
};

// Bytes that somebody else keeps alive: a chunk of a model snapshot that many connections send.
struct SharedBytes {
  std::shared_ptr<const void> owner = nullptr;
  ByteView bytes = {};
};

struct OutgoingFrame {
  std::uint16_t type = 0;
  Bytes header = {};         // a multiple of 8 bytes, at most kHeaderWordsMax * 8
  SharedBytes payload = {};  // at most kPayloadBytesMax
};

}  // namespace starling::net
