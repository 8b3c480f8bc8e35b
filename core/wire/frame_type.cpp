// SPDX-License-Identifier: Apache-2.0
#include "core/wire/frame_type.h"

#include <array>

#include "core/base/check.h"

namespace starling::wire {
namespace {

struct TypeOf {
  FrameType operator()(const protocol::Hello&) const { return FrameType::kHello; }
  FrameType operator()(const protocol::Welcome&) const { return FrameType::kWelcome; }
  FrameType operator()(const protocol::RoundPlan&) const { return FrameType::kRoundPlan; }
  FrameType operator()(const protocol::ModelRequest&) const { return FrameType::kModelRequest; }
  FrameType operator()(const protocol::Chunk&) const { return FrameType::kChunk; }
  FrameType operator()(const protocol::Credit&) const { return FrameType::kCredit; }
  FrameType operator()(const protocol::UpdateOffer&) const { return FrameType::kUpdateOffer; }
  FrameType operator()(const protocol::UpdateAccept&) const { return FrameType::kUpdateAccept; }
  FrameType operator()(const protocol::UpdateReceived&) const { return FrameType::kUpdateReceived; }
  FrameType operator()(const protocol::RoundCommitted&) const { return FrameType::kRoundCommitted; }
  FrameType operator()(const protocol::TaskEnded&) const { return FrameType::kTaskEnded; }
  FrameType operator()(const protocol::TaskFailed&) const { return FrameType::kTaskFailed; }
  FrameType operator()(const protocol::Ping&) const { return FrameType::kPing; }
  FrameType operator()(const protocol::Pong&) const { return FrameType::kPong; }
  FrameType operator()(const protocol::Bye&) const { return FrameType::kBye; }
  FrameType operator()(const protocol::OperatorRequest&) const {
    return FrameType::kOperatorRequest;
  }
  FrameType operator()(const protocol::OperatorReply&) const { return FrameType::kOperatorReply; }
  FrameType operator()(const protocol::PeerHello&) const { return FrameType::kPeerHello; }
  FrameType operator()(const protocol::RosterAsk&) const { return FrameType::kRosterAsk; }
  FrameType operator()(const protocol::RosterPart&) const { return FrameType::kRosterPart; }
  FrameType operator()(const protocol::Swim&) const { return FrameType::kSwim; }
  FrameType operator()(const protocol::VectorTransfer&) const { return FrameType::kVectorTransfer; }
  FrameType operator()(const protocol::ColumnsAsk&) const { return FrameType::kColumnsAsk; }
  FrameType operator()(const protocol::ColumnsPutOff&) const { return FrameType::kColumnsPutOff; }
  FrameType operator()(const protocol::MixAsk&) const { return FrameType::kMixAsk; }
  FrameType operator()(const protocol::MixAnswer&) const { return FrameType::kMixAnswer; }
  FrameType operator()(const protocol::ReduceNote&) const { return FrameType::kReduceNote; }
  FrameType operator()(const protocol::PeerReport&) const { return FrameType::kPeerReport; }
  FrameType operator()(const protocol::Relay&) const { return FrameType::kRelay; }
};

constexpr std::array<std::string_view, kFrameTypeMax> kNames = {
    "Hello",          "Welcome",        "RoundPlan",     "ModelRequest",
    "Chunk",          "Credit",         "UpdateOffer",   "UpdateAccept",
    "UpdateReceived", "RoundCommitted", "TaskEnded",     "TaskFailed",
    "Ping",           "Pong",           "Bye",           "OperatorRequest",
    "OperatorReply",  "PeerHello",      "RosterAsk",     "RosterPart",
    "Swim",           "VectorTransfer", "ColumnsAsk",    "ReduceNote",
    "PeerReport",     "Relay",          "ColumnsPutOff", "MixAsk",
    "MixAnswer"};
static_assert(!kNames.back().empty());

}  // namespace

FrameType frame_type(const protocol::Message& message) { return std::visit(TypeOf(), message); }

std::optional<FrameType> known_frame_type(std::uint16_t number) {
  if (number == 0 || number > kFrameTypeMax) return std::nullopt;
  return static_cast<FrameType>(number);
}

std::string_view to_string(FrameType type) {
  const auto number = static_cast<std::size_t>(type);
  STARLING_CHECK(number >= 1 && number <= kNames.size());
  return kNames[number - 1];
}

}  // namespace starling::wire
