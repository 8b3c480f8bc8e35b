// SPDX-License-Identifier: Apache-2.0
// The sessions of whoever issues work, as its shell sees them: connections of a service, or the
// links of a simulated network. Sessions that open, speak and close come to the shell as events.
#pragma once

#include <string>

#include "core/protocol/messages.h"

namespace starling::protocol {

class SessionLinks {
 public:
  virtual ~SessionLinks() = default;
  // A message that cannot be queued closes the session. To one that is closed nothing is sent.
  virtual void send(SessionId session, const Envelope& envelope) = 0;
  // What was sent before may still arrive.
  virtual void close(SessionId session, const std::string& code, const std::string& message) = 0;
  virtual bool is_open(SessionId session) const = 0;
};

}  // namespace starling::protocol
