// SPDX-License-Identifier: Apache-2.0
// The number that each message has in a frame's head. Numbers are for ever: a message that is no
// longer sent keeps its own, a new one is appended.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/protocol/messages.h"

namespace starling::wire {

enum class FrameType : std::uint16_t {
  // 0 belongs to the transport.
  kHello = 1,
  kWelcome = 2,
  kRoundPlan = 3,
  kModelRequest = 4,
  kChunk = 5,
  kCredit = 6,
  kUpdateOffer = 7,
  kUpdateAccept = 8,
  kUpdateReceived = 9,
  kRoundCommitted = 10,
  kTaskEnded = 11,
  kTaskFailed = 12,
  kPing = 13,
  kPong = 14,
  kBye = 15,
  kOperatorRequest = 16,
  kOperatorReply = 17,
  kPeerHello = 18,
  kRosterAsk = 19,
  kRosterPart = 20,
  kSwim = 21,
  kVectorTransfer = 22,
  kColumnsAsk = 23,
  kReduceNote = 24,
  kPeerReport = 25,
  kRelay = 26,
  kColumnsPutOff = 27,
  kMixAsk = 28,
  kMixAnswer = 29,
};

inline constexpr std::uint16_t kFrameTypeMax = 29;

FrameType frame_type(const protocol::Message& message);
// None: a number that this version does not know.
std::optional<FrameType> known_frame_type(std::uint16_t number);
// "RoundPlan"
std::string_view to_string(FrameType type);

}  // namespace starling::wire
