// SPDX-License-Identifier: Apache-2.0
// What is between versions: frames written by hand after the specification are understood, fields
// that do not exist yet are passed over, and fields that an earlier version lacks are zero.
#include <gtest/gtest.h>

#include "core/wire/codec.h"
#include "core/wire/limits.h"
#include "tests/wire/raw_message.h"

namespace starling::wire {
namespace {

using starling::testing::RawMessage;

Result<protocol::Message> decode(FrameType type, const RawMessage& message) {
  return decode_header(static_cast<std::uint16_t>(type), message.header());
}

RawMessage hello(std::uint16_t data_words, std::uint16_t pointers) {
  RawMessage message(data_words, pointers);
  message.word(1) = 1 | 2 << 16;  // versions 1 to 2
  message.word(2) = 60'000;
  message.text(1 + data_words, "other 0.2");
  return message;
}

const protocol::Message kHelloMessage =
    protocol::Hello{.version_min = 1, .version_max = 2, .software = "other 0.2", .rows = 60'000};

TEST(Layout, IsTheSpecifications) {
  EXPECT_EQ(*decode(FrameType::kHello, hello(2, 3)), kHelloMessage);
  EXPECT_EQ(*encode_header(kHelloMessage), hello(3, 3).header());
}

TEST(Layout, FieldsOfLaterVersionsArePassedOver) {
  RawMessage later = hello(6, 5);
  for (std::size_t at : {4, 5, 6}) later.word(at) = ~std::uint64_t{0};
  later.text(10, "a later text");
  const std::size_t list = later.allocate(4);
  later.list_pointer(11, list, RawMessage::kComposite, 3);
  later.tag(list, 1, 1, 2);
  later.text(list + 2, "within");
  EXPECT_EQ(*decode(FrameType::kHello, later), kHelloMessage);
}

TEST(Layout, PointersOfLaterVersionsAreNotFollowed) {
  RawMessage later = hello(2, 4);
  later.struct_pointer(6, 1'000'000, 1, 0);  // beyond the end
  EXPECT_EQ(*decode(FrameType::kHello, later), kHelloMessage);
}

TEST(Layout, WhatIsPaddingTodayIsPassedOver) {
  RawMessage later(3, 0);  // a Chunk, of whose third word 16 bits are used
  later.word(1) = 7;
  later.word(2) = 100;
  later.word(3) = 0xFFFFFFFFFFFF0002;
  EXPECT_EQ(*decode(FrameType::kChunk, later),
            protocol::Message(protocol::Chunk{TaskId(7), 100, 2}));
}

TEST(Layout, FieldsOfAnEarlierVersionAreZero) {
  RawMessage earlier(1, 0);
  earlier.word(1) = 1 | 1 << 16;
  EXPECT_EQ(*decode(FrameType::kHello, earlier), protocol::Message(protocol::Hello{}));
}

// A note of an all-reduce of this kind: the mean that it names is of attempt `held`, if of any, and
// its digest has so many bytes.
Result<protocol::Message> decode_note(unsigned kind, std::uint64_t held, std::size_t bytes) {
  RawMessage note(5, 2);
  note.word(1) = kind | held << 32;
  if (bytes > 0) note.data(7, std::string(bytes, 'x'));
  return decode(FrameType::kReduceNote, note);
}

TEST(Layout, ANoteThatNamesAMeanHasItsDigest) {
  // Register and Standing with a mean, Done, Commit, Want.
  for (const auto& [kind, held] : {std::pair(0U, 7U), {1U, 7U}, {2U, 0U}, {3U, 0U}, {4U, 0U}}) {
    EXPECT_TRUE(decode_note(kind, held, Sha256Digest::kBytes)) << kind;
    for (const std::size_t bytes : {0U, 1U, 31U, 33U}) {
      const auto refused = decode_note(kind, held, bytes);
      ASSERT_FALSE(refused) << kind << ", " << bytes;
      EXPECT_EQ(refused.error().code(), "bad-message") << kind << ", " << bytes;
    }
  }
  // What names none says nothing of it, whatever is there.
  for (const unsigned kind : {0U, 1U, 5U, 6U, 7U, 8U}) {
    for (const std::size_t bytes : {0U, 32U, 33U}) EXPECT_TRUE(decode_note(kind, 0, bytes)) << kind;
  }
  EXPECT_EQ(decode_note(10, 0, 0).error().code(), "bad-message");
}

TEST(Layout, AnEmptyMessageIsRefusedWhereFieldsAreNeeded) {
  EXPECT_EQ(*decode(FrameType::kPing, RawMessage()), protocol::Message(protocol::Ping{}));
  EXPECT_EQ(*decode(FrameType::kBye, RawMessage()), protocol::Message(protocol::Bye{}));
  for (FrameType type : {FrameType::kHello, FrameType::kWelcome, FrameType::kRoundPlan,
                         FrameType::kChunk, FrameType::kUpdateOffer, FrameType::kRoundCommitted}) {
    EXPECT_EQ(decode(type, RawMessage()).error().code(), "bad-message") << to_string(type);
  }
}

TEST(Layout, ACategoryOfALaterVersionIsAFailure) {
  for (const auto& [number, category] : {std::pair(0U, ErrorCategory::kFailed),
                                         {4U, ErrorCategory::kNotAuthorised},
                                         {5U, ErrorCategory::kFailed},
                                         {255U, ErrorCategory::kFailed}}) {
    RawMessage reply(2, 2);
    reply.word(1) = 7;
    reply.word(2) = 1 | std::uint64_t{number} << 8;
    EXPECT_EQ(*decode(FrameType::kOperatorReply, reply),
              protocol::Message(protocol::OperatorReply{.id = 7, .category = category}))
        << number;
  }
}

// A setting with a third field, as a later version may write it.
TEST(Layout, ElementsOfListsMayGrow) {
  RawMessage message(1, 2);
  message.word(1) = 9;
  message.text(2, "client-list");
  const std::size_t list = message.allocate(1 + 2 * 4);
  message.list_pointer(3, list, RawMessage::kComposite, 2 * 4);
  message.tag(list, 2, 1, 3);
  for (std::size_t i : {0, 1}) {
    const std::size_t at = list + 1 + i * 4;
    message.word(at) = 77;
    message.text(at + 1, i == 0 ? "a" : "b");
    message.text(at + 2, i == 0 ? "1" : "2");
    message.text(at + 3, "later");
  }
  const protocol::Message expected =
      protocol::OperatorRequest{9, "client-list", {{"a", "1"}, {"b", "2"}}};
  EXPECT_EQ(*decode(FrameType::kOperatorRequest, message), expected);
}

}  // namespace
}  // namespace starling::wire
