// SPDX-License-Identifier: Apache-2.0
#include "core/protocol/messages.h"

#include <utility>

namespace starling::protocol {

Message::Message() = default;
Message::Message(const Message& other) = default;
Message::Message(Message&& other) noexcept = default;
Message& Message::operator=(const Message& other) = default;
Message& Message::operator=(Message&& other) noexcept = default;
Message::~Message() = default;

bool operator==(const Message& a, const Message& b) {
  return static_cast<const AnyMessage&>(a) == static_cast<const AnyMessage&>(b);
}

namespace {

std::uint64_t bytes_of(const MixMessage& mix) {
  return sizeof(float) * (mix.first + mix.second) + mix.packed;
}
std::uint64_t bytes_of(const PairMessage& pair) {
  return sizeof(float) * pair.floats + pair.packed;
}
std::uint64_t bytes_of(const Introduction&) { return 0; }
std::uint64_t bytes_of(const Confirmation&) { return 0; }
std::uint64_t bytes_of(const ReducePiece& piece) { return sizeof(float) * piece.floats; }
std::uint64_t bytes_of(const ModelColumns& columns) { return sizeof(float) * columns.floats; }
std::uint64_t bytes_of(const WholeModel& model) { return sizeof(float) * model.floats; }

}  // namespace

std::uint64_t payload_bytes(const VectorTransfer& transfer) {
  return std::visit([](const auto& content) { return bytes_of(content); }, transfer.content);
}

template <IsMessage T>
Message::Message(T alternative) : AnyMessage(std::in_place_type<T>, std::move(alternative)) {}

template Message::Message(Hello);
template Message::Message(Welcome);
template Message::Message(RoundPlan);
template Message::Message(ModelRequest);
template Message::Message(Chunk);
template Message::Message(Credit);
template Message::Message(UpdateOffer);
template Message::Message(UpdateAccept);
template Message::Message(UpdateReceived);
template Message::Message(RoundCommitted);
template Message::Message(TaskEnded);
template Message::Message(TaskFailed);
template Message::Message(Ping);
template Message::Message(Pong);
template Message::Message(Bye);
template Message::Message(OperatorRequest);
template Message::Message(OperatorReply);
template Message::Message(PeerHello);
template Message::Message(RosterAsk);
template Message::Message(RosterPart);
template Message::Message(Swim);
template Message::Message(VectorTransfer);
template Message::Message(ColumnsAsk);
template Message::Message(ColumnsPutOff);
template Message::Message(MixAsk);
template Message::Message(MixAnswer);
template Message::Message(ReduceNote);
template Message::Message(PeerReport);
template Message::Message(Relay);

}  // namespace starling::protocol
