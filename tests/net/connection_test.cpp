// SPDX-License-Identifier: Apache-2.0
#include "core/net/connection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/digest.h"
#include "core/base/rng.h"
#include "core/net/buffer_pool.h"
#include "tests/net/loopback.h"

namespace starling::net {
namespace {

using testing::OpenLimits;

constexpr std::size_t kChunk = kPayloadBytesMax;

SharedBytes shared(Bytes bytes) {
  const auto owner = std::make_shared<const Bytes>(std::move(bytes));
  return {.owner = owner, .bytes = *owner};
}

Bytes random_bytes(std::size_t size, Rng& rng) {
  Bytes bytes(size);
  for (std::size_t i = 0; i + 4 <= size; i += 4) store_little(&bytes[i], rng.next_u32());
  return bytes;
}

std::string code(const Result<Frame>& frame) { return frame ? "a frame" : frame.error().code(); }

class ConnectionTest : public ::testing::Test, protected testing::Loopback {
 public:
  void connect_with(const ConnectionOptions& options) {
    listen({.connection = options});
    pair = connect_pair({.connection = options});
  }
  void SetUp() override { connect_with({}); }

  Async<std::string> read_code(Connection& connection) {
    auto frame = co_await connection.read_frame(limits);
    co_return code(frame);
  }
  Async<void> push_code(Connection& connection, testing::Mailbox<std::string>& into) {
    auto read = co_await read_code(connection);
    into.push(read);
  }

  OpenLimits limits;
  Pair pair;
};

Async<void> exchange_frames(Connection& from, Connection& to, const OpenLimits& limits) {
  Rng rng({.seed = 1, .purpose = Purpose::kTest});
  for (const auto& [words, bytes] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 0},
                                                        {1, 0},
                                                        {0, 1},
                                                        {17, 4093},
                                                        {kHeaderWordsMax, kPayloadBytesMax},
                                                        {2, kPayloadBytesMax}}) {
    const Bytes header = random_bytes(words * 8, rng);
    const SharedBytes payload = shared(random_bytes(bytes, rng));
    EXPECT_TRUE(from.send({.type = 7, .header = header, .payload = payload}));
    auto frame = co_await to.read_frame(limits);
    EXPECT_TRUE(frame);
    EXPECT_EQ(frame->type, 7);
    EXPECT_TRUE(std::ranges::equal(frame->header, header));
    EXPECT_TRUE(std::ranges::equal(frame->payload, payload.bytes));
  }
}

TEST_F(ConnectionTest, CarriesFramesOfAllSizes) {
  loop.run_task(exchange_frames(*pair.client, *pair.server, limits));
  loop.run_task(exchange_frames(*pair.server, *pair.client, limits));
  EXPECT_EQ(pair.client->counters().frames_out, 6U);
  EXPECT_EQ(pair.server->counters().frames_in, 6U);
  EXPECT_EQ(pair.client->counters().wire_bytes_out, pair.server->counters().wire_bytes_in);
}

// Sends `chunks` random chunks as the queue drains, and adds up what it sends.
class Sender {
 public:
  Sender(Connection& connection, std::uint64_t seed, int chunks)
      : connection_(connection), rng_({.seed = seed, .purpose = Purpose::kTest}), left_(chunks) {
    connection_.set_drain_handler([this] { fill(); });
    fill();
  }
  void fill() {
    while (left_ > 0 && connection_.queued_bytes() < kChunk) {
      --left_;
      const SharedBytes payload = shared(random_bytes(1 + rng_.below(kChunk), rng_));
      sum.update(payload.bytes);
      EXPECT_TRUE(connection_.send({.type = 1, .header = Bytes(8), .payload = payload}));
    }
    if (left_ == 0) {
      left_ = -1;
      EXPECT_TRUE(connection_.send({.type = 2}));
    }
  }
  Sha256 sum;

 private:
  Connection& connection_;
  Rng rng_;
  int left_;
};

Async<void> receive_until_end(Connection& connection, const OpenLimits& limits, Sha256& sum) {
  for (;;) {
    auto frame = co_await connection.read_frame(limits);
    if (!frame || frame->type == 2) co_return;
    sum.update(frame->payload);
  }
}

TEST_F(ConnectionTest, CarriesBulkBothWaysAtOnce) {
  constexpr int kChunks = 1000;  // about 32 MB each way
  Sender up(*pair.client, 1, kChunks);
  Sender down(*pair.server, 2, kChunks);
  Sha256 at_server;
  Sha256 at_client;
  TaskGroup tasks(loop);
  tasks.spawn(receive_until_end(*pair.server, limits, at_server));
  tasks.spawn(receive_until_end(*pair.client, limits, at_client));
  loop.run_task(tasks.wait());
  EXPECT_EQ(std::move(at_server).finish(), std::move(up.sum).finish());
  EXPECT_EQ(std::move(at_client).finish(), std::move(down.sum).finish());
}

TEST_F(ConnectionTest, RenewsItsKeysOnTheWay) {
  loop.run_task(listener->close());
  connect_with({.rekey_bytes = 100'000});
  Sender up(*pair.client, 3, 100);
  Sha256 at_server;
  loop.run_task(receive_until_end(*pair.server, limits, at_server));
  EXPECT_EQ(std::move(at_server).finish(), std::move(up.sum).finish());
}

TEST_F(ConnectionTest, AHeartbeatIsNotStuckBehindAModelTheOtherWay) {
  // The server is busy sending and nobody reads at the client; still the server hears the client.
  Sender down(*pair.server, 4, 2000);
  ASSERT_TRUE(pair.client->send({.type = 5}));
  EXPECT_EQ(run_task(loop, read_code(*pair.server)), "a frame");
}

TEST_F(ConnectionTest, RefusesBeyondTheQueuesLimits) {
  loop.run_task(listener->close());
  connect_with({.queue_bytes_max = 3 * kChunk, .queue_frames_max = 5});
  const SharedBytes chunk = shared(Bytes(kChunk));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pair.client->send({.type = 1, .payload = chunk}));
  const auto full = pair.client->send({.type = 1, .header = Bytes(8)});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), "queue-full");
  EXPECT_EQ(full.error().kind(), ErrorKind::kOverloaded);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pair.client->send({.type = 1}));
  EXPECT_EQ(pair.client->send({.type = 1}).error().code(), "queue-full");
  EXPECT_EQ(pair.client->queued_bytes(), 3 * kChunk);
  // What was accepted arrives all the same.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run_task(loop, read_code(*pair.server)), "a frame");
  EXPECT_EQ(pair.client->queued_bytes(), 0U);
  EXPECT_TRUE(pair.client->send({.type = 1}));
}

TEST_F(ConnectionTest, PayloadsAreKeptUntilSentAndNoLonger) {
  const auto owner = std::make_shared<const Bytes>(kChunk);
  ASSERT_TRUE(pair.client->send({.type = 1, .payload = {.owner = owner, .bytes = *owner}}));
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(run_task(loop, read_code(*pair.server)), "a frame");
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(ConnectionTest, ADrainHandlerMayTakeItselfAwayAndMayDropTheConnection) {
  int calls = 0;
  pair.client->set_drain_handler([&] {
    ++calls;
    pair.client->set_drain_handler(nullptr);
    EXPECT_TRUE(pair.client->send({.type = 2}));
  });
  ASSERT_TRUE(pair.client->send({.type = 1}));
  EXPECT_EQ(run_task(loop, read_code(*pair.server)), "a frame");
  EXPECT_EQ(run_task(loop, read_code(*pair.server)), "a frame");
  EXPECT_EQ(calls, 1);
  pair.client->set_drain_handler([&] { pair.client = nullptr; });
  ASSERT_TRUE(pair.client->send({.type = 1}));
  EXPECT_EQ(run_task(loop, read_code(*pair.server)), "connection-lost");
}

TEST_F(ConnectionTest, AnIdleConnectionHoldsNoBuffers) {
  ASSERT_TRUE(pair.client->send({.type = 1, .payload = shared(Bytes(kChunk))}));
  EXPECT_EQ(run_task(loop, read_code(*pair.server)), "a frame");
  testing::Mailbox<std::string> read(loop);
  TaskGroup tasks(loop);
  tasks.spawn(push_code(*pair.server, read));
  tasks.spawn(push_code(*pair.client, read));
  loop.run_task(turns(10));
  EXPECT_EQ(loop.buffers().records.borrowed(), 0U);
  EXPECT_EQ(loop.buffers().frames.borrowed(), 0U);
  loop.run_task(tasks.stop());
  EXPECT_EQ(run_task(loop, read.next()), "cancelled");
}

}  // namespace
}  // namespace starling::net
