// SPDX-License-Identifier: Apache-2.0
// A frame of the peers' protocol as the Relay message that carries it through the roster's issuer,
// and back: what comes is held to the same limits as if it had come over a connection.
#pragma once

#include <string>

#include "core/net/frame.h"
#include "core/protocol/messages.h"

namespace starling::link {

// To or from `peer`. The payload travels beside it. Errors as of wire::encode_header.
[[nodiscard]] Result<protocol::Relay> to_relay(std::string peer, const protocol::Message& message);

// The errors of Connection::read_frame against `limits` (unexpected-frame, header-too-large,
// payload-too-large) and of wire::decode_header. The payload is the one given.
[[nodiscard]] Result<protocol::Envelope> from_relay(const protocol::Relay& relay,
                                                    const SharedBytes& payload,
                                                    const net::FrameLimits& limits);

// Of the relayed frame itself.
std::size_t frame_bytes(const protocol::Relay& relay, const SharedBytes& payload);

}  // namespace starling::link
