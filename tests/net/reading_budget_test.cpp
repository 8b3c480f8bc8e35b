// SPDX-License-Identifier: Apache-2.0
// What one connection may make the others wait for: budgets count work, whatever its bytes.
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <thread>

#include "core/net/frame_assembler.h"
#include "core/net/frame_budget.h"
#include "core/net/handshake_budget.h"
#include "tests/net/loopback.h"
#include "tests/net/raw_client.h"

namespace starling::net {
namespace {

using std::chrono::milliseconds;
using testing::OpenLimits;

// A client that joins, and so shows no certificate: what it does after its handshake is up to the
// test.
class RawStranger {
 public:
  RawStranger(std::uint16_t port, std::function<void(SSL*)> talk)
      : thread_([port, talk = std::move(talk)] {
          ::signal(SIGPIPE, SIG_IGN);
          const testing::RawSocket socket(port);
          SSL_CTX* context = SSL_CTX_new(TLS_client_method());
          SSL* ssl = SSL_new(context);
          const std::string offer = "\x10starling-enrol/1";
          SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(offer.data()),
                              static_cast<unsigned>(offer.size()));
          SSL_set_fd(ssl, socket.fd());
          if (SSL_connect(ssl) == 1) talk(ssl);
          SSL_free(ssl);
          SSL_CTX_free(context);
        }) {}

 private:
  std::jthread thread_;
};

class ReadingBudgetTest : public ::testing::Test, protected testing::Loopback {
 public:
  // Reads until the connection ends, and says why it did.
  Async<std::string> read_to_end(Connection& connection) {
    for (;;) {
      auto frame = co_await connection.read_frame(limits);
      if (!frame) co_return frame.error().code();
    }
  }

  // Ends when `frames` have come; `frames_of_turn` then has how many came at a time.
  Async<void> read_in_turns(Connection& connection, int frames, Duration work) {
    for (int i = 0; i < frames; ++i) {
      auto frame = co_await connection.read_frame(limits);
      if (!frame) break;
      ++frames_of_turn.back();
      const TimePoint end = loop.now() + work;
      while (loop.now() < end) {
      }
    }
    reading = false;
  }
  Async<void> count_turns() {
    while (reading) {
      frames_of_turn.push_back(0);
      co_await boost::asio::post(loop.context(), boost::asio::use_awaitable);
    }
  }

  // Frames that have all arrived before the first is read.
  void read_many(int frames, Duration work) {
    listen();
    const Pair pair = connect_pair();
    for (int i = 0; i < frames; ++i) ASSERT_TRUE(pair.client->send({.type = 1}));
    loop.run_task(turns(100));
    TaskGroup tasks(loop);
    tasks.spawn(count_turns());
    tasks.spawn(read_in_turns(*pair.server, frames, work));
    loop.run_task(tasks.wait());
    EXPECT_EQ(pair.server->counters().frames_in, static_cast<std::uint64_t>(frames));
  }

  OpenLimits limits;
  bool reading = true;
  std::vector<int> frames_of_turn;
};

TEST_F(ReadingBudgetTest, SmallFramesLetOthersRunToo) {
  read_many(2000, Duration::zero());
  EXPECT_LE(*std::ranges::max_element(frames_of_turn), 256);
}

TEST_F(ReadingBudgetTest, FramesThatAreMuchWorkLetOthersRunAfterEach) {
  read_many(20, milliseconds(1));
  EXPECT_EQ(*std::ranges::max_element(frames_of_turn), 1);
}

TEST_F(ReadingBudgetTest, RecordsWithoutDataEndAConnection) {
  listen_for({{.protocol = Protocol::kEnrolment}});
  const RawStranger stranger(listener->port(), [](SSL* ssl) {
    for (int i = 0; i < 1000; ++i) {
      if (SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || SSL_do_handshake(ssl) != 1)
        break;
    }
    char piece[16];
    while (SSL_read(ssl, piece, sizeof piece) > 0) {
    }
  });
  const auto connection = run_task(loop, connections.next());
  EXPECT_EQ(run_task(loop, read_to_end(*connection)), "too-many-empty-records");
  EXPECT_LT(connection->counters().wire_bytes_in, 300'000U);
}

TEST_F(ReadingBudgetTest, WhoDoesNotSayWhoItIsMaySendLittle) {
  listen_for({{.protocol = Protocol::kEnrolment}});
  const RawStranger stranger(listener->port(), [](SSL* ssl) {
    const auto head = FrameHead{.payload_bytes = 1000, .type = 1}.encode();
    std::string frame(reinterpret_cast<const char*>(head.data()), head.size());
    frame.append(1000, 'x');
    for (int i = 0; i < 1000; ++i) {
      if (SSL_write(ssl, frame.data(), static_cast<int>(frame.size())) <= 0) break;
    }
  });
  const auto connection = run_task(loop, connections.next());
  EXPECT_EQ(run_task(loop, read_to_end(*connection)), "too-much-input");
}

TEST_F(ReadingBudgetTest, WhoIsKnownMaySendAsMuchAsItLikes) {
  listen();
  const Pair pair = connect_pair();
  const auto kilobyte = std::make_shared<const Bytes>(1024);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(pair.client->send(
        {.type = 1, .payload = {.owner = kilobyte, .bytes = ByteView(*kilobyte)}}));
  }
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(run_task(loop, pair.server->read_frame(limits)));
}

TEST(FrameBudget, ReadsASecondsWorthAtOnceAndThenTheRate) {
  FrameBudget budget({.per_second = 100});
  const TimePoint start(std::chrono::hours(1));
  TimePoint now = start;
  int frames = 0;
  while (now < start + std::chrono::seconds(10)) {
    now += budget.take({.type = 1}, now);
    ++frames;
  }
  EXPECT_NEAR(frames, 100 + 10 * 100, 5);
}

TEST(FrameBudget, AGrantIsForFramesOfItsKindAndASecondsWorthAtMost) {
  FrameBudget budget({.per_second = 100});
  const auto at_once = [](const auto& take) {
    int frames = 0;
    while (take() == Duration::zero()) ++frames;
    return frames;
  };
  const auto granted = [&] { return budget.take_granted({.type = 1}, TimePoint{}); };
  const auto other = [&] { return budget.take({.type = 2}, TimePoint{}); };
  budget.grant(50);
  EXPECT_EQ(at_once(other), 99);
  EXPECT_EQ(at_once(granted), 50);
  budget.grant(1000);
  EXPECT_EQ(at_once(other), 0);
  EXPECT_EQ(at_once(granted), 100);
  EXPECT_EQ(FrameBudget({.per_second = 100}).take_granted({.type = 1}, TimePoint{}),
            Duration::zero())
      << "without a grant it counts as any other";
}

TEST(FrameBudget, BulkIsNotCounted) {
  FrameBudget budget({.per_second = 1});
  const Bytes payload(FrameBudget::kBulkBytes);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(budget.take({.type = 1, .payload = payload}, TimePoint()), Duration::zero());
  }
}

TEST(FrameBudget, CountsWorkNotFrames) {
  FrameBudget budget({.per_second = 100});
  const Bytes payload(FrameBudget::kBulkBytes);
  const TimePoint start(std::chrono::hours(1));
  TimePoint now = start;
  int frames = 0;
  while (now < start + std::chrono::seconds(10)) {
    now += budget.take({.type = 1, .payload = payload}, now, 50);
    ++frames;
  }
  EXPECT_NEAR(frames, 2 + 10 * 2, 1);
}

// Strangers of one address, then of ever new ones, beside members that were there before.
TEST(HandshakeBudget, StrangersHaveALimitAndKnownAddressesTheirOwn) {
  HandshakeBudget budget({.of_address = {.per_second = 10, .burst = 20},
                          .of_strangers = {.per_second = 40, .burst = 50}});
  TimePoint now(std::chrono::hours(1));
  budget.know("anna", "10.0.0.1");
  int of_one = 0;
  for (int i = 0; i < 1200; ++i, now += milliseconds(8)) of_one += budget.allow("10.9.9.9", now);
  EXPECT_NEAR(of_one, 20 + 96, 3) << "120 a second for ten seconds";
  now += std::chrono::seconds(10);
  int of_many = 0;
  int of_members = 0;
  for (int i = 0; i < 1200; ++i, now += milliseconds(8)) {
    of_many += budget.allow("10.1." + std::to_string(i % 256) + "." + std::to_string(i / 256), now);
    if (i % 120 == 0) of_members += budget.allow("10.0.0.1", now);
  }
  EXPECT_NEAR(of_many, 50 + 384, 3);
  EXPECT_EQ(of_members, 10);
}

TEST(HandshakeBudget, NoMemberTakesTheOthersPlaceAmongTheKnown) {
  HandshakeBudget budget({.of_strangers = {.per_second = 1, .burst = 1}, .known_max = 2});
  const TimePoint now(std::chrono::hours(1));
  budget.know("anna", "10.0.0.1");
  for (int i = 0; i < 5000; ++i) {
    budget.know("mallory", "10.1." + std::to_string(i % 250) + "." + std::to_string(i / 250));
  }
  budget.know("mallory", "10.0.0.1");
  budget.know("mallory", "10.2.0.1");
  budget.know("mallory", "10.2.0.2");
  budget.know("bob", "10.0.0.2");
  EXPECT_TRUE(budget.allow("10.9.9.9", now)) << "all that strangers have";
  for (const char* known : {"10.0.0.1", "10.0.0.2", "10.2.0.1", "10.2.0.2"}) {
    EXPECT_TRUE(budget.allow(known, now)) << known;
  }
  EXPECT_FALSE(budget.allow("10.1.0.0", now));
  EXPECT_FALSE(budget.allow("10.1.249.19", now));
}

TEST(FrameBudget, ConnectionsOfOneIdentityShareIt) {
  FrameBudget budget({.per_second = 10});
  const TimePoint start(std::chrono::hours(1));
  std::array<TimePoint, 4> next{start, start, start, start};
  int frames = 0;
  for (;;) {
    TimePoint& mine = *std::ranges::min_element(next);
    if (mine >= start + std::chrono::seconds(10)) break;
    mine += budget.take({.type = 1}, mine);
    ++frames;
  }
  EXPECT_NEAR(frames, 10 + 10 * 10, 5);
}

}  // namespace
}  // namespace starling::net
