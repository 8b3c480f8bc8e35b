// SPDX-License-Identifier: Apache-2.0
// Messages over an authenticated connection: the one place where the wire's frame tables and codec
// meet the network's frames. For the shells of coordinator, devices and operators alike.
#pragma once

#include "core/net/connection.h"
#include "core/protocol/messages.h"
#include "core/wire/bounds.h"

namespace starling::link {

// What read_frame() is to expect. The table changes with the session's state (greeted or not).
class MessageLimits final : public net::FrameLimits {
 public:
  explicit MessageLimits(const wire::FrameTable& table) : table_(&table) {}
  void expect(const wire::FrameTable& table) { table_ = &table; }
  std::optional<net::FrameBound> bound(std::uint16_t type) const override;

 private:
  const wire::FrameTable* table_;
};

// The errors of wire::encode_header and of Connection::send. The payload is not copied.
[[nodiscard]] Result<void> send(net::Connection& connection, const protocol::Envelope& envelope);

// The errors of wire::decode_header. The payload is the frame's own: it holds no longer than that.
[[nodiscard]] Result<protocol::Envelope> decode(const net::Frame& frame);

}  // namespace starling::link
