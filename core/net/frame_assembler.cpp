// SPDX-License-Identifier: Apache-2.0
#include "core/net/frame_assembler.h"

#include "core/base/check.h"

namespace starling::net {
namespace {

constexpr std::size_t kPayloadOffset = kHeaderWordsMax * std::size_t{8};
static_assert(kPayloadOffset % BufferPool::kAlignment == 0);

Error too_large(const char* code, const char* part, std::uint16_t type, std::size_t bytes,
                std::size_t bytes_max) {
  return rejected(code, std::string("a frame of type ") + std::to_string(type) + " announces a " +
                            part + " of " + std::to_string(bytes) + " bytes, where at most " +
                            std::to_string(bytes_max) + " are expected");
}

}  // namespace

std::array<std::byte, kHeadBytes> FrameHead::encode() const {
  std::array<std::byte, kHeadBytes> bytes{};
  store_little(bytes.data(), payload_bytes);
  store_little(bytes.data() + 4, header_words);
  store_little(bytes.data() + 6, type);
  return bytes;
}

FrameHead FrameHead::decode(std::span<const std::byte, kHeadBytes> bytes) {
  return {.payload_bytes = load_little<std::uint32_t>(bytes.data()),
          .header_words = load_little<std::uint16_t>(bytes.data() + 4),
          .type = load_little<std::uint16_t>(bytes.data() + 6)};
}

FrameAssembler::FrameAssembler(BufferPool& pool) : pool_(pool) {
  STARLING_CHECK(pool.buffer_bytes() >= kPayloadOffset + kPayloadBytesMax);
}

MutableByteView FrameAssembler::space() {
  STARLING_CHECK(!complete_);
  if (filled_ < kHeadBytes) return MutableByteView(head_bytes_).subspan(filled_);
  const std::size_t body = filled_ - kHeadBytes;
  if (body < head_.header_bytes()) {
    return {buffer_.get() + body, head_.header_bytes() - body};
  }
  const std::size_t payload = body - head_.header_bytes();
  return {buffer_.get() + kPayloadOffset + payload, head_.payload_bytes - payload};
}

Result<bool> FrameAssembler::commit(std::size_t bytes, const FrameLimits& limits) {
  const bool had_head = filled_ >= kHeadBytes;
  filled_ += bytes;
  if (!had_head && filled_ == kHeadBytes) STARLING_TRY(accept_head(limits));
  complete_ =
      filled_ >= kHeadBytes && filled_ == kHeadBytes + head_.header_bytes() + head_.payload_bytes;
  return complete_;
}

Result<void> FrameAssembler::accept_head(const FrameLimits& limits) {
  head_ = FrameHead::decode(head_bytes_);
  const std::optional<FrameBound> bound = limits.bound(head_.type);
  if (!bound) {
    return rejected("unexpected-frame",
                    "a frame of type " + std::to_string(head_.type) + " is not expected now");
  }
  STARLING_CHECK(bound->header_words_max <= kHeaderWordsMax &&
                 bound->payload_bytes_max <= kPayloadBytesMax);
  if (head_.header_words > bound->header_words_max) {
    return too_large("header-too-large", "header", head_.type, head_.header_bytes(),
                     bound->header_words_max * std::size_t{8});
  }
  if (head_.payload_bytes > bound->payload_bytes_max) {
    return too_large("payload-too-large", "payload", head_.type, head_.payload_bytes,
                     bound->payload_bytes_max);
  }
  const bool is_bare = head_.header_words == 0 && head_.payload_bytes == 0;
  if (!buffer_ && !is_bare) buffer_ = pool_.borrow();
  return {};
}

Frame FrameAssembler::frame() const {
  STARLING_CHECK(complete_);
  Frame frame;
  frame.type = head_.type;
  if (head_.header_words > 0) frame.header = {buffer_.get(), head_.header_bytes()};
  if (head_.payload_bytes > 0) {
    frame.payload = {buffer_.get() + kPayloadOffset, head_.payload_bytes};
  }
  return frame;
}

void FrameAssembler::next() {
  filled_ = 0;
  complete_ = false;
}

void FrameAssembler::release() {
  STARLING_CHECK(!is_inside_frame());
  next();
  buffer_.reset();
}

}  // namespace starling::net
