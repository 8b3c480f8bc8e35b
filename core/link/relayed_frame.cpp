// SPDX-License-Identifier: Apache-2.0
#include "core/link/relayed_frame.h"

#include <fmt/format.h>

#include "core/wire/codec.h"

namespace starling::link {

// What a vector of bytes allocates is aligned as decode_header wants it.
static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= 8);

Result<protocol::Relay> to_relay(std::string peer, const protocol::Message& message) {
  STARLING_ASSIGN(Bytes header, wire::encode_header(message));
  return protocol::Relay{.peer = std::move(peer),
                         .type = static_cast<std::uint16_t>(wire::frame_type(message)),
                         .header = std::move(header)};
}

Result<protocol::Envelope> from_relay(const protocol::Relay& relay, const SharedBytes& payload,
                                      const net::FrameLimits& limits) {
  const auto bound = limits.bound(relay.type);
  if (!bound) {
    return rejected("unexpected-frame",
                    fmt::format("a relayed frame of type {} is not expected here", relay.type));
  }
  if (relay.header.size() > std::size_t{8} * bound->header_words_max) {
    return rejected("header-too-large",
                    fmt::format("a relayed header of {} bytes, {} at most", relay.header.size(),
                                std::size_t{8} * bound->header_words_max));
  }
  if (payload.size() > bound->payload_bytes_max) {
    return rejected("payload-too-large", fmt::format("a relayed payload of {} bytes, {} at most",
                                                     payload.size(), bound->payload_bytes_max));
  }
  STARLING_ASSIGN(protocol::Message message, wire::decode_header(relay.type, relay.header));
  return protocol::Envelope{std::move(message), payload};
}

std::size_t frame_bytes(const protocol::Relay& relay, const SharedBytes& payload) {
  return net::kHeadBytes + relay.header.size() + payload.size();
}

}  // namespace starling::link
