// SPDX-License-Identifier: Apache-2.0
// A message as the header of a frame and back: one Cap'n Proto message of a single segment
// (protocol.capnp), without the payload that may follow it. A decoded message is within limits.h,
// its texts are UTF-8; nothing else about it is to be trusted.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/protocol/messages.h"
#include "core/wire/frame_type.h"

namespace starling::wire {

// Whole words of 8 bytes, within bound_of(frame_type(message)). Sentences for people (`message` of
// TaskEnded, TaskFailed, Bye and OperatorReply) are cut to fit and cleaned of what is not UTF-8;
// anything else that exceeds its limit is "message-too-large", what no peer would take (an id of 0,
// a negative duration, a text that is not UTF-8) "bad-message".
[[nodiscard]] Result<Bytes> encode_header(const protocol::Message& message);

// Requires: header.data() is aligned to 8 bytes.
// Never throws, and takes no more memory than a small multiple of the header. Fails with
// "bad-message" (malformed or out of its limits), "unknown-message" (a type of a later version),
// "unknown-encoding" (of an offered vector). Fields of later versions are passed over.
[[nodiscard]] Result<protocol::Message> decode_header(std::uint16_t type, ByteView header);

}  // namespace starling::wire
