// SPDX-License-Identifier: Apache-2.0
// A client's link with its coordinator, as its shell sees it: a TLS connection, or one of a
// simulated network. What comes of it goes to the shell as events: Connected, Received,
// Disconnected.
#pragma once

#include "core/protocol/messages.h"

namespace starling::client {

class Link {
 public:
  virtual ~Link() = default;
  // Answered by Connected or Disconnected, in a later turn.
  virtual void dial() = 0;
  // What was sent before may still arrive. Nothing comes of this link any more.
  virtual void hang_up() = 0;
  // A link that cannot take the message breaks: Disconnected follows.
  virtual void send(const protocol::Envelope& envelope) = 0;
};

}  // namespace starling::client
