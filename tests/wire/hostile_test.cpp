// SPDX-License-Identifier: Apache-2.0
// Whatever stands in a header: a valid message or a named error, and memory in proportion to the
// header. Run under the sanitizers this is also the proof that nothing is read out of bounds.
#include <gtest/gtest.h>

#include "core/wire/bounds.h"
#include "core/wire/codec.h"
#include "core/wire/limits.h"
#include "tests/wire/allocation_count.h"
#include "tests/wire/random_message.h"
#include "tests/wire/raw_message.h"
#include "tests/wire/sample_messages.h"

namespace starling::wire {
namespace {

using starling::testing::bytes_allocated;
using starling::testing::RawMessage;

// All that is asked for, not only what is held at once: a text may be copied once on its way.
constexpr std::size_t kMemoryFactor = 16;
constexpr std::size_t kMemoryForErrors = 4096;

std::uint16_t number_of(FrameType type) { return static_cast<std::uint16_t>(type); }

// "" for a valid message, else the reason code. Checks what must hold in either case.
std::string verdict(std::uint16_t type, ByteView header) {
  const std::size_t before = bytes_allocated();
  const auto message = decode_header(type, header);
  const std::size_t memory = bytes_allocated() - before;
  EXPECT_LE(memory, kMemoryFactor * header.size() + kMemoryForErrors);
  if (!message) {
    std::string code = message.error().code();
    EXPECT_TRUE(code == "bad-message" || code == "unknown-message" || code == "unknown-encoding")
        << code;
    EXPECT_FALSE(message.error().message().empty());
    return code;
  }
  // What was taken can be said again, and means the same; only pointers that shared their target
  // may make it too large.
  const auto again = encode_header(*message);
  if (!again) {
    EXPECT_EQ(again.error().code(), "message-too-large") << again.error().message();
    return "";
  }
  const auto twice = decode_header(type, *again);
  EXPECT_TRUE(twice && *encode_header(*twice) == *again);
  return "";
}

std::string verdict(FrameType type, const RawMessage& message) {
  return verdict(number_of(type), message.header());
}

Bytes with_sizes_repaired(Bytes header) {
  store_little<std::uint32_t>(header.data(), 0);
  store_little<std::uint32_t>(header.data() + 4, static_cast<std::uint32_t>(header.size() / 8 - 1));
  return header;
}

TEST(Hostile, SegmentTables) {
  const Bytes good = *encode_header(protocol::Ping{7});
  ASSERT_EQ(good.size(), 24U);
  const auto with = [&](std::uint32_t segments_less_one, std::uint32_t words) {
    Bytes header = good;
    store_little(header.data(), segments_less_one);
    store_little(header.data() + 4, words);
    return verdict(number_of(FrameType::kPing), header);
  };
  EXPECT_EQ(with(0, 2), "");
  for (std::uint32_t segments :
       {1U, 2U, 511U, 512U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFEU, 0xFFFFFFFFU}) {
    for (std::uint32_t words : {0U, 1U, 2U, 3U, 0xFFFFFFFFU}) {
      EXPECT_EQ(with(segments, words), "bad-message") << segments << ' ' << words;
    }
  }
  for (std::uint32_t words : {0U, 1U, 3U, 4U, 0x1FFFFFFFU, 0x20000002U, 0x80000002U, 0xFFFFFFFFU}) {
    EXPECT_EQ(with(0, words), "bad-message") << words;
  }
}

TEST(Hostile, HeadersOfNoProperSize) {
  const Bytes good = *encode_header(protocol::Ping{7});
  EXPECT_EQ(verdict(number_of(FrameType::kPing), {}), "bad-message");
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(verdict(number_of(FrameType::kPing), ByteView(good).first(size)), "bad-message");
  }
  Bytes large(bound_of(FrameType::kPing).header_words_max * 8U);
  std::copy(good.begin(), good.end(), large.begin());
  EXPECT_EQ(verdict(number_of(FrameType::kPing), with_sizes_repaired(large)), "");
  large.resize(large.size() + 8);
  EXPECT_EQ(verdict(number_of(FrameType::kPing), with_sizes_repaired(large)), "bad-message");
}

TEST(Hostile, UnknownTypes) {
  const Bytes good = *encode_header(protocol::Ping{7});
  EXPECT_EQ(verdict(0, good), "unknown-message");
  for (std::uint32_t type = kFrameTypeMax + 1; type <= 0xFFFF; ++type) {
    ASSERT_EQ(decode_header(static_cast<std::uint16_t>(type), good).error().code(),
              "unknown-message");
  }
}

TEST(Hostile, TruncatedAtEachByte) {
  for (const auto& sample : starling::testing::sample_messages()) {
    const Bytes header = *encode_header(sample.message);
    const std::uint16_t type = number_of(frame_type(sample.message));
    for (std::size_t size = 0; size < header.size(); ++size) {
      EXPECT_EQ(verdict(type, ByteView(header).first(size)), "bad-message") << sample.name;
    }
    for (std::size_t size = 16; size < header.size(); size += 8) {
      const Bytes repaired =
          with_sizes_repaired(Bytes(header.begin(), header.begin() + std::ptrdiff_t(size)));
      EXPECT_EQ(verdict(type, repaired), "bad-message") << sample.name << ' ' << size;
    }
  }
}

TEST(Hostile, EachByteChanged) {
  for (const auto& sample : starling::testing::sample_messages()) {
    Bytes header = *encode_header(sample.message);
    for (std::byte& byte : header) {
      const std::byte original = byte;
      for (unsigned bit = 0; bit < 8; ++bit) {
        byte = original ^ static_cast<std::byte>(1U << bit);
        verdict(number_of(frame_type(sample.message)), header);
      }
      for (unsigned value : {0x00U, 0x7FU, 0x80U, 0xFFU}) {
        byte = static_cast<std::byte>(value);
        verdict(number_of(frame_type(sample.message)), header);
      }
      byte = original;
    }
  }
}

TEST(Hostile, EachMessageUnderEachType) {
  for (const auto& sample : starling::testing::sample_messages()) {
    const Bytes header = *encode_header(sample.message);
    for (std::uint16_t type = 1; type <= kFrameTypeMax; ++type) verdict(type, header);
  }
}

TEST(Hostile, RandomDamage) {
  const auto samples = starling::testing::sample_messages();
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    Rng rng(StreamKey{.seed = 2, .round = i});
    const auto& sample = samples[rng.below(samples.size())];
    Bytes header = *encode_header(sample.message);
    for (std::uint64_t k = 1 + rng.below(6); k > 0; --k) {
      // Whole words, so that pointers meet other pointers, or bytes.
      const std::size_t to = 8 + 8 * rng.below(header.size() / 8 - 1);
      const std::size_t from = 8 + 8 * rng.below(header.size() / 8 - 1);
      if (rng.below(2) == 0) {
        std::memcpy(header.data() + to, header.data() + from, 8);
      } else {
        header[to + rng.below(8)] = static_cast<std::byte>(rng.below(256));
      }
    }
    SCOPED_TRACE(i);
    verdict(number_of(frame_type(sample.message)), header);
  }
}

TEST(Hostile, RandomWords) {
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    Rng rng(StreamKey{.seed = 3, .round = i});
    Bytes header(16 + 8 * rng.below(32));
    for (std::size_t at = 8; at < header.size(); at += 8) {
      // Small offsets and sizes now and then, so that some pointers point somewhere.
      const std::uint64_t word =
          rng.next_u64() & (rng.below(2) == 0 ? 0x0003'0007'0000'003F : ~0ULL);
      store_little(header.data() + at, word);
    }
    SCOPED_TRACE(i);
    verdict(static_cast<std::uint16_t>(1 + rng.below(kFrameTypeMax)), with_sizes_repaired(header));
  }
}

TEST(Hostile, FarPointers) {
  for (std::uint32_t segment : {0U, 1U, 2U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    for (bool double_far : {false, true}) {
      for (std::size_t target : {0U, 1U, 2U, 3U, 4U, 5U, 1000U, 0x1FFFFFFFU}) {
        RawMessage raw;
        raw.allocate(4);
        raw.far_pointer(0, target, segment, double_far);
        raw.struct_pointer(1, 3, 1, 0);
        raw.word(3) = 99;
        const std::string code = verdict(FrameType::kPing, raw);
        if (segment != 0) {
          EXPECT_EQ(code, "bad-message") << segment << ' ' << target;
        }
      }
    }
  }
}

TEST(Hostile, FarPointersInACircle) {
  RawMessage raw;
  raw.allocate(3);
  raw.far_pointer(0, 1, 0);
  raw.far_pointer(1, 2, 0);
  raw.far_pointer(2, 1, 0);
  EXPECT_EQ(verdict(FrameType::kPing, raw), "bad-message");
  raw.far_pointer(0, 0, 0);
  EXPECT_EQ(verdict(FrameType::kPing, raw), "bad-message");
}

// The arguments of an OperatorRequest as a list of `count` settings of that shape, in `words`.
RawMessage with_arguments(std::uint64_t count, std::uint16_t data_words, std::uint16_t pointers,
                          std::uint64_t words) {
  RawMessage raw(1, 2);
  const std::size_t list = raw.allocate(1);
  raw.list_pointer(3, list, RawMessage::kComposite, words);
  raw.tag(list, count, data_words, pointers);
  return raw;
}

TEST(Hostile, ListsThatClaimMoreThanThereIs) {
  for (std::uint64_t count : {1ULL, 256ULL, 257ULL, 100'000ULL, 0x1FFFFFFFULL, 0x3FFFFFFFULL}) {
    for (std::uint16_t pointers : {std::uint16_t{2}, std::uint16_t{0xFFFF}}) {
      const std::uint64_t words = std::min<std::uint64_t>(count * pointers, 0x1FFFFFFF);
      const RawMessage raw = with_arguments(count, 0, pointers, words);
      EXPECT_EQ(verdict(FrameType::kOperatorRequest, raw), "bad-message") << count;
    }
  }
}

// Elements without size cost their sender nothing.
TEST(Hostile, ListsOfNothing) {
  for (std::uint64_t count : {1ULL, 256ULL, 257ULL, 100'000ULL, 0x1FFFFFFFULL}) {
    EXPECT_EQ(verdict(FrameType::kOperatorRequest, with_arguments(count, 0, 0, 0)), "bad-message");
    RawMessage raw(1, 2);
    raw.list_pointer(3, 4, RawMessage::kVoid, count);
    EXPECT_EQ(verdict(FrameType::kOperatorRequest, raw), "bad-message") << count;
    RawMessage bytes(1, 2);
    bytes.list_pointer(3, 4, RawMessage::kByte, count);
    EXPECT_EQ(verdict(FrameType::kOperatorRequest, bytes), "bad-message") << count;
  }
}

// The library would make a struct of each byte.
TEST(Hostile, ListsOfNumbers) {
  RawMessage raw(1, 2);
  raw.text(3, std::string(255, 'x'));
  EXPECT_EQ(verdict(FrameType::kOperatorRequest, raw), "bad-message");
  RawMessage numbers = with_arguments(256, 1, 0, 256);
  numbers.allocate(256);
  EXPECT_EQ(verdict(FrameType::kOperatorRequest, numbers), "bad-message");
}

TEST(Hostile, TextsThatClaimMoreThanThereIs) {
  for (std::uint64_t count : {16ULL, 1024ULL, 65'536ULL, 0x1FFFFFFFULL}) {
    RawMessage raw(0, 2);
    raw.allocate(1);
    raw.list_pointer(1, 3, RawMessage::kByte, count);
    EXPECT_EQ(verdict(FrameType::kBye, raw), "bad-message") << count;
  }
}

TEST(Hostile, TextsWithoutAnEnd) {
  RawMessage raw(0, 2);
  raw.data(1, "12345678");
  EXPECT_EQ(verdict(FrameType::kBye, raw), "bad-message");
  raw.list_pointer(1, 3, RawMessage::kByte, 0);
  EXPECT_EQ(verdict(FrameType::kBye, raw), "bad-message");
}

TEST(Hostile, PointersOfAnotherKind) {
  RawMessage list_as_text(0, 2);
  const std::size_t list = list_as_text.allocate(2);
  list_as_text.list_pointer(1, list, RawMessage::kPointer, 2);
  EXPECT_EQ(verdict(FrameType::kBye, list_as_text), "bad-message");
  RawMessage struct_as_text(0, 2);
  struct_as_text.struct_pointer(1, struct_as_text.allocate(1), 1, 0);
  EXPECT_EQ(verdict(FrameType::kBye, struct_as_text), "bad-message");
  RawMessage text_as_list(1, 2);
  text_as_list.text(3, "a text");
  EXPECT_EQ(verdict(FrameType::kOperatorRequest, text_as_list), "bad-message");
  RawMessage capability(0, 2);
  capability.word(1) = 3;
  EXPECT_EQ(verdict(FrameType::kBye, capability), "bad-message");
  RawMessage root;
  root.text(0, "a text");
  EXPECT_EQ(verdict(FrameType::kBye, root), "bad-message");
}

TEST(Hostile, PointersOutOfTheMessage) {
  for (std::size_t target : {std::size_t{4}, std::size_t{1000}, std::size_t{0x1FFFFFFF},
                             ~std::size_t{0}, ~std::size_t{0} - 1000}) {
    RawMessage raw;
    raw.allocate(1);
    raw.struct_pointer(0, target, 1, 1);
    EXPECT_EQ(verdict(FrameType::kPing, raw), "bad-message") << target;
  }
}

// A struct that contains itself, and pointers that point at pointers.
TEST(Hostile, Circles) {
  RawMessage itself;
  itself.struct_pointer(0, 0, 0, 1);
  EXPECT_EQ(verdict(FrameType::kBye, itself), "bad-message");
  RawMessage plan(8, 4);
  for (std::size_t at : {9, 10, 11, 12}) plan.struct_pointer(at, 1, 8, 4);
  EXPECT_EQ(verdict(FrameType::kRoundPlan, plan), "bad-message");
  RawMessage list(1, 2);
  list.list_pointer(3, 2, RawMessage::kPointer, 2);
  EXPECT_EQ(verdict(FrameType::kOperatorRequest, list), "bad-message");
}

// Each of 256 settings points to one and the same text: 4 KiB that would become 256 KiB.
TEST(Hostile, PointersThatShareTheirTarget) {
  for (std::uint64_t count : {1ULL, 2ULL, 8ULL, 64ULL, 256ULL}) {
    RawMessage raw = with_arguments(count, 0, 2, 2 * count);
    const std::size_t first = raw.allocate(2 * count);
    const std::size_t shared = raw.text(first + 1, std::string(1000, 'v'));
    for (std::size_t i = 0; i < count; ++i) {
      raw.list_pointer(first + 2 * i + 1, shared, RawMessage::kByte, 1001);
    }
    const std::string code = verdict(FrameType::kOperatorRequest, raw);
    EXPECT_EQ(code, count <= 2 ? "" : "bad-message") << count;
  }
}

TEST(Hostile, DeepNestingWhereNobodyLooks) {
  RawMessage raw(0, 3);
  std::size_t at = 3;
  for (int depth = 0; depth < 60; ++depth) {
    const std::size_t next = raw.allocate(1);
    raw.struct_pointer(at, next, 0, 1);
    at = next;
  }
  EXPECT_EQ(verdict(FrameType::kBye, raw), "");
}

TEST(Hostile, DigestsOfAnotherSize) {
  for (std::size_t size : {0U, 1U, 31U, 33U, 64U}) {
    RawMessage raw(3, 1);
    raw.word(1) = 5;
    raw.data(4, std::string(size, 'd'));
    EXPECT_EQ(verdict(FrameType::kRoundCommitted, raw), "bad-message") << size;
  }
  RawMessage raw(3, 1);
  raw.word(1) = 5;
  raw.data(4, std::string(32, 'd'));
  EXPECT_EQ(verdict(FrameType::kRoundCommitted, raw), "");
}

TEST(Hostile, TwoScalarsOfOneName) {
  Bytes header = *encode_header(
      protocol::UpdateOffer{{.task = TaskId(1), .scalars = {{"loss-a", 1}, {"loss-b", 2}}}});
  for (std::byte& byte : header) {
    if (byte == std::byte{'b'}) byte = std::byte{'a'};
  }
  EXPECT_EQ(verdict(number_of(FrameType::kUpdateOffer), header), "bad-message");
}

}  // namespace
}  // namespace starling::wire
