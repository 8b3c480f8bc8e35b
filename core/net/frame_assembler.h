// SPDX-License-Identifier: Apache-2.0
// Puts frames together from pieces of any size and holds the one that was read last. Memory is
// borrowed only for a frame whose head has been accepted. For sources of this folder only.
#pragma once

#include <array>

#include "core/net/buffer_pool.h"
#include "core/net/frame.h"

namespace starling::net {

struct FrameHead {
  std::uint32_t payload_bytes = 0;
  std::uint16_t header_words = 0;
  std::uint16_t type = 0;

  std::size_t header_bytes() const { return std::size_t{header_words} * 8; }
  std::array<std::byte, kHeadBytes> encode() const;
  static FrameHead decode(std::span<const std::byte, kHeadBytes> bytes);
};

class FrameAssembler {
 public:
  // Requires: buffers of kHeaderWordsMax * 8 + kPayloadBytesMax bytes.
  explicit FrameAssembler(BufferPool& pool);

  // Where the next bytes belong; never empty. Requires: no complete frame is held.
  MutableByteView space();
  // Takes the first `bytes` of space() as filled; true when the frame is complete. After an error
  // nothing more can be read.
  [[nodiscard]] Result<bool> commit(std::size_t bytes, const FrameLimits& limits);

  bool is_complete() const { return complete_; }
  bool is_inside_frame() const { return filled_ > 0 && !complete_; }
  Frame frame() const;  // Requires: is_complete()
  // Forgets the complete frame, so that its buffer serves the next one.
  void next();
  // Gives the buffer back. Requires: not inside a frame.
  void release();

 private:
  Result<void> accept_head(const FrameLimits& limits);

  BufferPool& pool_;
  BufferPool::Buffer buffer_;  // the header at 0, the payload at kPayloadOffset
  std::array<std::byte, kHeadBytes> head_bytes_{};
  FrameHead head_;
  std::size_t filled_ = 0;  // of head, header and payload together
  bool complete_ = false;
};

}  // namespace starling::net
