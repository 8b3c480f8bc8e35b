// SPDX-License-Identifier: Apache-2.0
#include "core/net/frame_assembler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/rng.h"

namespace starling::net {
namespace {

constexpr std::size_t kFrameBytes = 128 * 1024;

// Type 1 up to 4 words and 100 bytes, type 2 as large as frames can be; nothing else.
class TestLimits final : public FrameLimits {
 public:
  std::optional<FrameBound> bound(std::uint16_t type) const override {
    if (type == 1) return FrameBound{.header_words_max = 4, .payload_bytes_max = 100};
    if (type == 2) {
      return FrameBound{.header_words_max = kHeaderWordsMax, .payload_bytes_max = kPayloadBytesMax};
    }
    return {};
  }
};

Bytes random_part(std::size_t size, Rng& rng) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.below(256));
  return bytes;
}

Bytes encoded(std::uint16_t type, const Bytes& header, const Bytes& payload) {
  const FrameHead head{.payload_bytes = static_cast<std::uint32_t>(payload.size()),
                       .header_words = static_cast<std::uint16_t>(header.size() / 8),
                       .type = type};
  const auto start = head.encode();
  Bytes bytes(start.size() + header.size() + payload.size());
  auto end = std::ranges::copy(start, bytes.begin()).out;
  end = std::ranges::copy(header, end).out;
  std::ranges::copy(payload, end);
  return bytes;
}

// Feeds all of `bytes` in pieces; the error, or whether a frame was complete at the very end.
Result<bool> feed(FrameAssembler& assembler, ByteView bytes, std::size_t piece) {
  bool complete = false;
  while (!bytes.empty()) {
    const MutableByteView space = assembler.space();
    const std::size_t count = std::min({piece, space.size(), bytes.size()});
    std::copy_n(bytes.begin(), count, space.begin());
    bytes = bytes.subspan(count);
    STARLING_ASSIGN(complete, assembler.commit(count, TestLimits()));
    if (complete && !bytes.empty()) return rejected("early", "complete too early");
  }
  return complete;
}

TEST(FrameHead, StandsLittleEndianOnTheWire) {
  const auto bytes =
      FrameHead{.payload_bytes = 0x01020304, .header_words = 0x0506, .type = 0x0708}.encode();
  EXPECT_EQ(to_hex(bytes), "0403020106050807");
}

TEST(FrameAssembler, PutsFramesTogetherFromPiecesOfAnySize) {
  Rng rng({.seed = 1, .purpose = Purpose::kTest});
  BufferPool pool(kFrameBytes);
  FrameAssembler assembler(pool);
  for (const auto& [words, payload_bytes] :
       {std::pair<std::size_t, std::size_t>{0, 0}, {1, 0}, {0, 1}, {3, 99}, {4, 100}}) {
    const Bytes header = random_part(words * 8, rng);
    const Bytes payload = random_part(payload_bytes, rng);
    const Bytes bytes = encoded(1, header, payload);
    for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
      const auto complete = feed(assembler, bytes, piece);
      ASSERT_TRUE(complete) << complete.error().message();
      ASSERT_TRUE(*complete);
      const Frame frame = assembler.frame();
      EXPECT_EQ(frame.type, 1);
      EXPECT_TRUE(std::ranges::equal(frame.header, header));
      EXPECT_TRUE(std::ranges::equal(frame.payload, payload));
      assembler.next();
    }
  }
}

TEST(FrameAssembler, TakesTheLargestFrameAlignedForItsReaders) {
  Rng rng({.seed = 2, .purpose = Purpose::kTest});
  BufferPool pool(kFrameBytes);
  FrameAssembler assembler(pool);
  const Bytes header = random_part(kHeaderWordsMax * 8, rng);
  const Bytes payload = random_part(kPayloadBytesMax, rng);
  ASSERT_TRUE(*feed(assembler, encoded(2, header, payload), 10007));
  const Frame frame = assembler.frame();
  EXPECT_TRUE(std::ranges::equal(frame.header, header));
  EXPECT_TRUE(std::ranges::equal(frame.payload, payload));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame.header.data()) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame.payload.data()) % 64, 0U);
}

TEST(FrameAssembler, RefusesWhatTheSessionDoesNotExpect) {
  BufferPool pool(kFrameBytes);
  const auto code = [&](const FrameHead& head) {
    FrameAssembler assembler(pool);
    const auto complete = feed(assembler, head.encode(), kHeadBytes);
    return complete ? std::string("accepted") : complete.error().code();
  };
  EXPECT_EQ(code({.payload_bytes = 100, .header_words = 4, .type = 1}), "accepted");
  EXPECT_EQ(code({.payload_bytes = 101, .header_words = 4, .type = 1}), "payload-too-large");
  EXPECT_EQ(code({.payload_bytes = 100, .header_words = 5, .type = 1}), "header-too-large");
  EXPECT_EQ(code({.type = 3}), "unexpected-frame");
  EXPECT_EQ(code({.payload_bytes = kPayloadBytesMax + 1, .type = 2}), "payload-too-large");
  EXPECT_EQ(code({.payload_bytes = 0xFFFFFFFF, .header_words = 1, .type = 2}), "payload-too-large");
  EXPECT_EQ(code({.header_words = 0xFFFF, .type = 2}), "header-too-large");
}

TEST(FrameAssembler, BorrowsMemoryOnlyForAcceptedFramesWithContent) {
  BufferPool pool(kFrameBytes);
  FrameAssembler assembler(pool);
  ASSERT_TRUE(feed(assembler, FrameHead{.type = 1}.encode(), 1));
  EXPECT_EQ(pool.borrowed(), 0U);
  assembler.next();
  EXPECT_FALSE(feed(assembler, FrameHead{.payload_bytes = 101, .type = 1}.encode(), 8));
  EXPECT_EQ(pool.borrowed(), 0U);

  FrameAssembler another(pool);
  ASSERT_TRUE(feed(another, FrameHead{.payload_bytes = 100, .type = 1}.encode(), 8));
  EXPECT_EQ(pool.borrowed(), 1U);
  EXPECT_TRUE(another.is_inside_frame());
  ASSERT_TRUE(feed(another, Bytes(100), 100));
  another.release();
  EXPECT_EQ(pool.borrowed(), 0U);
}

TEST(FrameAssembler, AnyBytesAreFramesOrAnError) {
  Rng rng({.seed = 3, .purpose = Purpose::kTest});
  BufferPool pool(kFrameBytes);
  for (int i = 0; i < 2000; ++i) {
    FrameAssembler assembler(pool);
    Bytes bytes = random_part(8 + static_cast<std::size_t>(rng.below(300)), rng);
    bytes[7] = std::byte{0};
    bytes[6] = static_cast<std::byte>(rng.below(4));
    if (rng.below(2) == 0) bytes[1] = bytes[2] = bytes[3] = bytes[5] = std::byte{0};
    ByteView rest = bytes;
    while (!rest.empty()) {
      const MutableByteView space = assembler.space();
      ASSERT_FALSE(space.empty());
      const std::size_t count = std::min(space.size(), rest.size());
      std::copy_n(rest.begin(), count, space.begin());
      rest = rest.subspan(count);
      const auto complete = assembler.commit(count, TestLimits());
      if (!complete) break;
      if (*complete) assembler.next();
    }
  }
}

}  // namespace
}  // namespace starling::net
