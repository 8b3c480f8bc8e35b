// SPDX-License-Identifier: Apache-2.0
#include "core/wire/bounds.h"

#include <gtest/gtest.h>

#include <set>

#include "core/wire/limits.h"

namespace starling::wire {
namespace {

using enum FrameType;

std::set<FrameType> expected_in(const FrameTable& table) {
  std::set<FrameType> types;
  for (std::uint32_t number = 0; number <= 0xFFFF; ++number) {
    const auto type = static_cast<std::uint16_t>(number);
    if (const auto bound = table.bound(type)) {
      types.insert(static_cast<FrameType>(type));
      EXPECT_EQ(*bound, bound_of(static_cast<FrameType>(type)));
    }
  }
  return types;
}

using Types = std::set<FrameType>;

TEST(Bounds, BeforeTheGreetingOnlyGreetings) {
  EXPECT_EQ(expected_in(from_client(false)), Types({kHello}));
  EXPECT_EQ(expected_in(from_coordinator(false)), Types({kWelcome, kBye}));
}

TEST(Bounds, AfterTheGreetingWhatTheProtocolSays) {
  EXPECT_EQ(expected_in(from_client(true)),
            Types({kModelRequest, kChunk, kCredit, kUpdateOffer, kTaskFailed, kPing, kPong, kBye,
                   kRosterAsk, kVectorTransfer, kPeerReport, kRelay}));
  EXPECT_EQ(expected_in(from_coordinator(true)),
            Types({kRoundPlan, kChunk, kCredit, kUpdateAccept, kUpdateReceived, kRoundCommitted,
                   kTaskEnded, kPing, kPong, kBye, kRosterPart, kRelay}));
}

TEST(Bounds, PeersGreetBeforeTheySayAnythingElse) {
  EXPECT_EQ(expected_in(from_peer(false)), Types({kPeerHello, kBye}));
  EXPECT_EQ(expected_in(from_peer(true)),
            Types({kPeerHello, kRosterAsk, kRosterPart, kSwim, kVectorTransfer, kChunk, kCredit,
                   kColumnsAsk, kColumnsPutOff, kMixAsk, kMixAnswer, kReduceNote, kTaskEnded, kPing,
                   kPong, kBye}));
}

TEST(Bounds, OperatorsOnlyAskAndAreAnswered) {
  EXPECT_EQ(expected_in(from_operator()), Types({kOperatorRequest, kPing, kPong, kBye}));
  EXPECT_EQ(expected_in(to_operator()), Types({kOperatorReply, kPing, kPong, kBye}));
}

TEST(Bounds, OnlyBulkFramesHavePayload) {
  for (std::uint16_t number = 1; number <= kFrameTypeMax; ++number) {
    const auto type = static_cast<FrameType>(number);
    const bool bulk = type == kChunk || type == kOperatorRequest || type == kOperatorReply ||
                      type == kRosterPart || type == kRelay;
    EXPECT_EQ(bound_of(type).payload_bytes_max, bulk ? protocol::kChunkBytesMax : 0U)
        << to_string(type);
  }
}

TEST(Bounds, HeadersAreSmallExceptThoseWithLists) {
  for (std::uint16_t number = 1; number <= kFrameTypeMax; ++number) {
    const auto type = static_cast<FrameType>(number);
    const bool lists = type == kRoundPlan || type == kUpdateOffer || type == kOperatorRequest ||
                       type == kReduceNote || type == kRelay || type == kSwim;
    const std::size_t bytes = bound_of(type).header_words_max * 8U;
    EXPECT_LE(bytes, lists ? kHeaderBytesMax : 2048U) << to_string(type);
  }
  EXPECT_LE(bound_of(kHello).header_words_max * 8U, 1024U);
}

}  // namespace
}  // namespace starling::wire
