// SPDX-License-Identifier: Apache-2.0
#include "core/link/message_link.h"

#include "core/wire/codec.h"

namespace starling::link {

std::optional<net::FrameBound> MessageLimits::bound(std::uint16_t type) const {
  const auto bound = table_->bound(type);
  if (!bound) return std::nullopt;
  return net::FrameBound{bound->header_words_max, bound->payload_bytes_max};
}

Result<void> send(net::Connection& connection, const protocol::Envelope& envelope) {
  STARLING_ASSIGN(Bytes header, wire::encode_header(envelope.message));
  return connection.send({.type = static_cast<std::uint16_t>(wire::frame_type(envelope.message)),
                          .header = std::move(header),
                          .payload = {envelope.payload.owner(), envelope.payload.view()}});
}

Result<protocol::Envelope> decode(const net::Frame& frame) {
  STARLING_ASSIGN(protocol::Message message, wire::decode_header(frame.type, frame.header));
  return protocol::Envelope{std::move(message), SharedBytes(nullptr, frame.payload)};
}

}  // namespace starling::link
