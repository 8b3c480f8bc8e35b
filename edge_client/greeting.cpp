// SPDX-License-Identifier: Apache-2.0
#include "edge_client/greeting.h"

#include <tuple>

#include "core/link/message_link.h"
#include "core/net/deadline.h"
#include "edge_client/advice.h"

namespace starling::edge_client {
namespace {

constexpr Duration kGoodbye = std::chrono::seconds(1);

Result<protocol::Welcome> check_answer(const Result<net::Frame>& frame) {
  if (!frame) return frame.error();
  STARLING_ASSIGN(const protocol::Envelope envelope, link::decode(*frame));
  if (const auto* welcome = std::get_if<protocol::Welcome>(&envelope.message)) return *welcome;
  if (const auto* bye = std::get_if<protocol::Bye>(&envelope.message)) {
    return as_refusal(
        rejected(bye->code, "the coordinator closed the connection: " + bye->message));
  }
  return rejected("bad-message", "the coordinator did not answer the greeting with a welcome");
}

// Whether it arrives does not matter.
void say_goodbye(net::Connection& connection) {
  std::ignore = link::send(connection, {protocol::Bye{"preflight", "this was only a check"}, {}});
}

net::Async<Result<protocol::Welcome>> exchange(net::Connection& connection,
                                               protocol::Envelope hello) {
  const auto sent = link::send(connection, hello);
  if (!sent) co_return sent.error();
  const link::MessageLimits limits(wire::from_coordinator(false));
  auto frame = co_await connection.read_frame(limits);
  co_return check_answer(frame);
}

}  // namespace

net::Async<Result<protocol::Welcome>> greet(net::EventLoop& loop,
                                            const identity::IdentityDirectory& identity,
                                            const Clock& clock, GreetingOptions options) {
  auto connected = co_await connect_to_coordinator(loop, identity, clock, options.connect);
  if (!connected) co_return connected.error();
  const std::unique_ptr<net::Connection> connection = std::move(*connected);
  Result<protocol::Welcome> welcome = protocol::Welcome();
  if (!options.only_connect) {
    const TimePoint deadline = loop.now() + options.greeting_deadline;
    protocol::Envelope hello;
    hello.message = options.hello;
    std::string what = "the coordinator's welcome";
    auto work = exchange(*connection, std::move(hello));
    welcome = co_await net::with_deadline(loop, deadline, std::move(what), std::move(work));
    say_goodbye(*connection);
  }
  const TimePoint end = loop.now() + kGoodbye;
  co_await connection->close(end);
  co_return welcome;
}

}  // namespace starling::edge_client
