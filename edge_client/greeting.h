// SPDX-License-Identifier: Apache-2.0
// Connects, says hello, hears the welcome and leaves: whether a session would come about, and why
// not.
#pragma once

#include <string>

#include "core/base/clock.h"
#include "core/net/event_loop.h"
#include "core/protocol/messages.h"
#include "edge_client/coordinator_link.h"

namespace starling::edge_client {

struct GreetingOptions {
  net::ConnectOptions connect;
  Duration greeting_deadline = std::chrono::seconds(10);
  protocol::Hello hello;
  bool only_connect = false;  // authenticate both sides, say nothing
};

// An empty Welcome where only_connect. Errors: those of net::connect and of what stands in a Bye;
// "bad-message" where the coordinator says anything else. The references must outlive the call.
net::Async<Result<protocol::Welcome>> greet(net::EventLoop& loop,
                                            const identity::IdentityDirectory& identity,
                                            const Clock& clock, GreetingOptions options);

}  // namespace starling::edge_client
