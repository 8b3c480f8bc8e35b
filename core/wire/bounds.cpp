// SPDX-License-Identifier: Apache-2.0
#include "core/wire/bounds.h"

#include "core/base/check.h"
#include "core/wire/limits.h"

namespace starling::wire {
namespace {

constexpr std::uint32_t kPayloadBytesMax = protocol::kChunkBytesMax;
constexpr std::uint32_t kNumbersWords = 32;  // numbers and at most one digest
constexpr std::uint32_t kSwimWords =
    128 + protocol::kBeatsMax;                 // news, and a heartbeat of each member
constexpr std::uint32_t kNamesWords = 128;     // and up to two names
constexpr std::uint32_t kSentenceWords = 192;  // and a code and a sentence
constexpr std::uint32_t kReportWords = 256;    // numbers, a name and a sentence
constexpr std::uint32_t kListsWords = kHeaderBytesMax / 8;

}  // namespace

Bound bound_of(FrameType type) {
  switch (type) {
    case FrameType::kHello:
    case FrameType::kWelcome:
      return {kNamesWords, 0};
    case FrameType::kRoundPlan:
    case FrameType::kUpdateOffer:
      return {kListsWords, 0};
    case FrameType::kChunk:
      return {kNumbersWords, kPayloadBytesMax};
    case FrameType::kModelRequest:
    case FrameType::kCredit:
    case FrameType::kUpdateAccept:
    case FrameType::kUpdateReceived:
    case FrameType::kRoundCommitted:
    case FrameType::kPing:
    case FrameType::kPong:
      return {kNumbersWords, 0};
    case FrameType::kTaskEnded:
    case FrameType::kTaskFailed:
    case FrameType::kBye:
      return {kSentenceWords, 0};
    case FrameType::kOperatorRequest:
      return {kListsWords, kPayloadBytesMax};
    case FrameType::kOperatorReply:
      return {kSentenceWords, kPayloadBytesMax};
    case FrameType::kPeerHello:
      return {kNamesWords, 0};
    case FrameType::kSwim:
      return {kSwimWords, 0};
    case FrameType::kRosterAsk:
    case FrameType::kVectorTransfer:
    case FrameType::kColumnsAsk:
    case FrameType::kColumnsPutOff:
    case FrameType::kMixAsk:
    case FrameType::kMixAnswer:
      return {kNumbersWords, 0};
    case FrameType::kRosterPart:
      return {kNumbersWords, kPayloadBytesMax};
    case FrameType::kReduceNote:
      return {kListsWords, 0};
    case FrameType::kPeerReport:
      return {kReportWords, 0};
    case FrameType::kRelay:
      return {kListsWords, kPayloadBytesMax};
  }
  STARLING_CHECK(false);  // not of the list
}

FrameTable::FrameTable(std::initializer_list<FrameType> expected) {
  for (FrameType type : expected) expected_[static_cast<std::size_t>(type)] = true;
}

std::optional<Bound> FrameTable::bound(std::uint16_t type) const {
  if (type >= expected_.size() || !expected_[type]) return std::nullopt;
  return bound_of(static_cast<FrameType>(type));
}

const FrameTable& from_client(bool greeted) {
  using enum FrameType;
  static const FrameTable kBefore{kHello};
  static const FrameTable kAfter{kModelRequest, kChunk,          kCredit,     kUpdateOffer,
                                 kTaskFailed,   kPing,           kPong,       kBye,
                                 kRosterAsk,    kVectorTransfer, kPeerReport, kRelay};
  return greeted ? kAfter : kBefore;
}

const FrameTable& from_coordinator(bool greeted) {
  using enum FrameType;
  static const FrameTable kBefore{kWelcome, kBye};
  static const FrameTable kAfter{
      kRoundPlan, kChunk, kCredit, kUpdateAccept, kUpdateReceived, kRoundCommitted,
      kTaskEnded, kPing,  kPong,   kBye,          kRosterPart,     kRelay};
  return greeted ? kAfter : kBefore;
}

const FrameTable& from_peer(bool greeted) {
  using enum FrameType;
  static const FrameTable kBefore{kPeerHello, kBye};
  static const FrameTable kAfter{kPeerHello,      kRosterAsk, kRosterPart, kSwim,
                                 kVectorTransfer, kChunk,     kCredit,     kColumnsAsk,
                                 kColumnsPutOff,  kMixAsk,    kMixAnswer,  kReduceNote,
                                 kTaskEnded,      kPing,      kPong,       kBye};
  return greeted ? kAfter : kBefore;
}

const FrameTable& from_operator() {
  using enum FrameType;
  static const FrameTable kTable{kOperatorRequest, kPing, kPong, kBye};
  return kTable;
}

const FrameTable& to_operator() {
  using enum FrameType;
  static const FrameTable kTable{kOperatorReply, kPing, kPong, kBye};
  return kTable;
}

}  // namespace starling::wire
