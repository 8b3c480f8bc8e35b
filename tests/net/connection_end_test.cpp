// SPDX-License-Identifier: Apache-2.0
// How a connection ends: in good order, by its limits, by the other side's silence, or by force.
#include <gtest/gtest.h>

#include <future>

#include "tests/net/loopback.h"
#include "tests/net/raw_client.h"

namespace starling::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Type 1, small; or nothing of more than the session's own wish.
class SmallLimits final : public FrameLimits {
 public:
  std::optional<FrameBound> bound(std::uint16_t type) const override {
    if (type != 1) return {};
    return FrameBound{.header_words_max = 1, .payload_bytes_max = 10};
  }
};

class ConnectionEndTest : public ::testing::Test, protected testing::Loopback {
 public:
  ConnectionEndTest() : tasks(loop), results(loop) {}
  ~ConnectionEndTest() override { loop.run_task(tasks.stop()); }

  void connect_with(const ConnectionOptions& server_options) {
    listen({.connection = server_options});
    pair = connect_pair();
  }

  Async<void> read_into(Connection& connection, const FrameLimits& limits) {
    auto frame = co_await connection.read_frame(limits);
    results.push(frame ? "type " + std::to_string(frame->type) : frame.error().code());
  }
  std::string read_code(Connection& connection) { return read_code(connection, any); }
  std::string read_code(Connection& connection, const FrameLimits& limits) {
    tasks.spawn(read_into(connection, limits));
    return run_task(loop, results.next());
  }
  Async<void> close_by(Connection& connection, TimePoint deadline) {
    co_await connection.close(deadline);
    results.push("over");
  }
  void start_closing(Connection& connection) {
    tasks.spawn(close_by(connection, loop.now() + seconds(20)));
  }
  std::string next_result() { return run_task(loop, results.next()); }

  testing::OpenLimits any;
  TaskGroup tasks;
  testing::Mailbox<std::string> results;
  Pair pair;
};

TEST_F(ConnectionEndTest, ClosingSendsWhatIsQueuedAndSaysGoodbye) {
  connect_with({});
  const auto chunk = std::make_shared<const Bytes>(kPayloadBytesMax);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(pair.client->send({.type = 1, .payload = {.owner = chunk, .bytes = *chunk}}));
  }
  start_closing(*pair.client);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(read_code(*pair.server), "type 1");
  EXPECT_EQ(read_code(*pair.server), "closed");
  EXPECT_EQ(read_code(*pair.server), "closed");  // and stays so
  EXPECT_EQ(pair.client->send({.type = 1}).error().code(), "closed");
  start_closing(*pair.server);
  EXPECT_EQ(next_result(), "over");
  EXPECT_EQ(next_result(), "over");
}

TEST_F(ConnectionEndTest, BothSidesMayCloseAtOnce) {
  connect_with({});
  start_closing(*pair.client);
  start_closing(*pair.server);
  EXPECT_EQ(next_result(), "over");
  EXPECT_EQ(next_result(), "over");
}

TEST_F(ConnectionEndTest, ClosingEndsAPendingRead) {
  connect_with({});
  tasks.spawn(read_into(*pair.client, any));
  loop.run_task(turns(5));
  start_closing(*pair.client);
  EXPECT_EQ(next_result(), "cancelled");
  start_closing(*pair.server);
  EXPECT_EQ(next_result(), "over");
  EXPECT_EQ(next_result(), "over");
}

TEST_F(ConnectionEndTest, ClosingDoesNotWaitBeyondItsDeadline) {
  connect_with({});
  // Nobody reads at the server: neither the queue nor the goodbye gets through.
  const auto chunk = std::make_shared<const Bytes>(kPayloadBytesMax);
  while (pair.client->send({.type = 1, .payload = {.owner = chunk, .bytes = *chunk}})) {
    loop.run_task(turns(1));
  }
  loop.run_task(close_by(*pair.client, loop.now() + milliseconds(50)));
  EXPECT_EQ(next_result(), "over");
}

TEST_F(ConnectionEndTest, AbortIsImmediate) {
  connect_with({});
  tasks.spawn(read_into(*pair.client, any));
  loop.run_task(turns(5));
  pair.client->abort();
  EXPECT_EQ(next_result(), "cancelled");
  EXPECT_EQ(read_code(*pair.server), "connection-lost");
  EXPECT_EQ(pair.client->send({.type = 1}).error().code(), "closed");
  EXPECT_EQ(read_code(*pair.client), "cancelled");
}

TEST_F(ConnectionEndTest, AConnectionMayBeDestroyedUnderItsReader) {
  connect_with({});
  tasks.spawn(read_into(*pair.client, any));
  loop.run_task(turns(5));
  pair.client = nullptr;
  EXPECT_EQ(next_result(), "cancelled");
}

TEST_F(ConnectionEndTest, ACancelledTaskStopsReadingAndTheConnectionLives) {
  connect_with({});
  tasks.spawn(read_into(*pair.server, any));
  loop.run_task(turns(5));
  tasks.cancel();
  EXPECT_EQ(next_result(), "cancelled");
  ASSERT_TRUE(pair.client->send({.type = 9}));
  EXPECT_EQ(read_code(*pair.server), "type 9");
}

TEST_F(ConnectionEndTest, NothingBeyondTheLimitsIsRead) {
  const auto eleven = std::make_shared<const Bytes>(11);
  const SmallLimits small;
  for (const auto& [frame, reason] : std::vector<std::pair<OutgoingFrame, std::string>>{
           {{.type = 2}, "unexpected-frame"},
           {{.type = 1, .header = Bytes(16)}, "header-too-large"},
           {{.type = 1, .payload = {.owner = eleven, .bytes = *eleven}}, "payload-too-large"}}) {
    connect_with({});
    ASSERT_TRUE(pair.client->send(frame));
    ASSERT_TRUE(pair.client->send({.type = 1}));
    EXPECT_EQ(read_code(*pair.server, small), reason);
    EXPECT_EQ(read_code(*pair.server, small), reason);  // the stream cannot be picked up again
    // But the other side can still be told why.
    EXPECT_TRUE(pair.server->send({.type = 3}));
    start_closing(*pair.server);
    EXPECT_EQ(read_code(*pair.client), "type 3");
    EXPECT_EQ(read_code(*pair.client), "closed");
    start_closing(*pair.client);
    EXPECT_EQ(next_result(), "over");
    EXPECT_EQ(next_result(), "over");
    loop.run_task(listener->close());
  }
}

TEST_F(ConnectionEndTest, SilenceEndsAfterIdleMax) {
  connect_with({.idle_max = milliseconds(50)});
  EXPECT_EQ(read_code(*pair.server), "idle");
  EXPECT_EQ(read_code(*pair.client), "connection-lost");
}

TEST_F(ConnectionEndTest, AFrameThatNeverEndsIsCutAfterFrameMax) {
  listen({.connection = {.frame_max = milliseconds(100)}});
  const identity::Credentials good = device();
  const std::uint16_t port = listener->port();
  // The head of a frame with ten bytes of payload, and three of them.
  const std::string words("\x0a\0\0\0\0\0\x01\0abc", 11);
  auto client = std::async(std::launch::async,
                           [&] { return testing::talk_tls(port, {.credentials = &good}, words); });
  const auto server = run_task(loop, connections.next());
  EXPECT_EQ(read_code(*server), "frame-deadline");
  EXPECT_TRUE(client.get().handshake);
}

TEST_F(ConnectionEndTest, AReaderThatStopsIsCutAfterStallMax) {
  connect_with({.queue_bytes_max = 64 << 20, .stall_max = milliseconds(100)});
  const auto chunk = std::make_shared<const Bytes>(kPayloadBytesMax);
  tasks.spawn(read_into(*pair.server, any));
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(pair.server->send({.type = 1, .payload = {.owner = chunk, .bytes = *chunk}}));
  }
  EXPECT_EQ(next_result(), "stalled");
}

}  // namespace
}  // namespace starling::net
