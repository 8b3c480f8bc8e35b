// SPDX-License-Identifier: Apache-2.0
#include "core/net/listener.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "core/net/deadline.h"
#include "tests/net/loopback.h"
#include "tests/net/raw_client.h"
#include "tests/support/machine_stopwatch.h"

namespace starling::net {
namespace {

using std::chrono::milliseconds;
using testing::client_tls;
using testing::kNow;
using testing::RawSocket;

class ListenerTest : public ::testing::Test, protected testing::Loopback {
 protected:
  std::string next_refusal() { return run_task(loop, refusals.next()).error.code(); }
  bool refused_at_once() { return refusals.size() > 0; }
};

TEST_F(ListenerTest, CutsHandshakesThatTakeTooLong) {
  listen({.handshake_max = milliseconds(50)});
  const RawSocket silent(listener->port());
  EXPECT_EQ(next_refusal(), "deadline");
  const RawSocket slow(listener->port());
  ::send(slow.fd(), "\x16\x03\x01\x02", 4, MSG_NOSIGNAL);
  EXPECT_EQ(next_refusal(), "deadline");
}

TEST_F(ListenerTest, LetsOthersInWhileOneIsSlow) {
  listen();
  const RawSocket silent(listener->port());
  EXPECT_TRUE(connect_pair().server);
}

TEST_F(ListenerTest, LeavesWhoComesBeyondTheLimitInTheBacklog) {
  listen({.handshakes_max = 2,
          .handshake_undisturbed = std::chrono::seconds(60),
          .handshake_max = std::chrono::seconds(60)});
  std::optional<RawSocket> first(listener->port());
  std::optional<RawSocket> second(listener->port());
  std::optional<Result<std::unique_ptr<Connection>>> third;
  TaskGroup tasks(loop);
  tasks.spawn(store_result(dial(client_tls(device())), third));
  loop.run_task(turns(100));
  EXPECT_FALSE(third);
  first.reset();
  loop.run_task(tasks.wait());
  EXPECT_TRUE(*third);
  EXPECT_EQ(next_refusal(), "connection-lost");
}

TEST_F(ListenerTest, OneAddressDoesNotTakeAllSlots) {
  listen({.handshakes_per_address_max = 3});
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < 4; ++i) sockets.push_back(std::make_unique<RawSocket>(listener->port()));
  EXPECT_EQ(next_refusal(), "too-many-handshakes");
  sockets.clear();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(next_refusal(), "connection-lost");
  loop.run_task(turns(10));
  EXPECT_TRUE(connect_pair().server);
}

TEST_F(ListenerTest, WhoSaysNothingMakesRoomForNewcomers) {
  listen({.handshakes_max = 2,
          .handshake_undisturbed = Duration::zero(),
          .handshake_max = std::chrono::seconds(60)});
  const RawSocket first(listener->port());
  const RawSocket second(listener->port());
  EXPECT_TRUE(connect_pair({.deadline = std::chrono::seconds(10)}).server);
  EXPECT_EQ(next_refusal(), "too-many-handshakes");
  EXPECT_FALSE(second.ended());
}

TEST_F(ListenerTest, WhoWasRefusedHoldsNoSlotWhileItReadsWhy) {
  listen({.handshakes_max = 1, .handshake_undisturbed = std::chrono::seconds(60)});
  const testing::MachineStopwatch since_start;
  std::vector<std::unique_ptr<RawSocket>> refused;  // each may linger for a second
  for (int i = 0; i < 20; ++i) {
    refused.push_back(std::make_unique<RawSocket>(listener->port()));
    refused.back()->send("GET / HTTP/1.1\r\n");
    EXPECT_EQ(next_refusal(), "not-tls");
  }
  EXPECT_TRUE(connect_pair({.deadline = std::chrono::seconds(10)}).server);
  EXPECT_LT(since_start.seconds(), 10) << "each would have waited a second for the one before";
}

// A socket that was reset knows its address no more: it used to be counted under one address and
// looked up under another, which ended the process.
TEST_F(ListenerTest, KnowsTheAddressOfAConnectionThatWasResetBeforeItWasAccepted) {
  listen();
  {
    const RawSocket socket(listener->port());
    socket.reset_when_closed();
  }
  const Refusal refusal = run_task(loop, refusals.next());
  EXPECT_EQ(refusal.error.code(), "connection-lost");
  EXPECT_EQ(refusal.remote_address, "127.0.0.1");
}

TEST_F(ListenerTest, SurvivesResetsAtAnyMoment) {
  constexpr int kThreads = 4;
  constexpr int kResets = 500;
  listen();
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([port = listener->port(), thread] {
      for (int i = 0; i < kResets; ++i) {
        const RawSocket socket(port);
        socket.reset_when_closed();
        const auto moment =
            std::chrono::steady_clock::now() + std::chrono::microseconds((i * 7 + thread) % 150);
        while (std::chrono::steady_clock::now() < moment) {
        }
      }
    });
  }
  for (int i = 0; i < kThreads * kResets; ++i) {
    EXPECT_EQ(run_task(loop, refusals.next()).remote_address, "127.0.0.1");
  }
  EXPECT_TRUE(connect_pair().server);
}

TEST_F(ListenerTest, AsksBeforeItSpendsAnythingOnAnAddress) {
  std::vector<std::string> asked;
  may_connect = [&](const std::string& address) {
    asked.push_back(address);
    return asked.size() > 1;
  };
  listen();
  const RawSocket first(listener->port());
  EXPECT_EQ(next_refusal(), "rate-limited");
  EXPECT_TRUE(connect_pair().server);
  EXPECT_EQ(asked, (std::vector<std::string>{"127.0.0.1", "127.0.0.1"}));
}

TEST_F(ListenerTest, NewCertificatesServeNewConnectionsAndOldOnesLive) {
  listen();
  auto before = connect_pair();
  coordinator = *authority.issue_credentials(
      {.role = identity::Role::kCoordinator, .name = "hub-2", .addresses = {"127.0.0.1"}}, kNow);
  listener->set_tls(*TlsContext::make_server(
      coordinator, {{.protocol = Protocol::kSession, .client = testing::client_policy()}}));
  auto after = connect_pair();
  EXPECT_EQ(before.client->peer()->identity.name, "hub");
  EXPECT_EQ(after.client->peer()->identity.name, "hub-2");
  ASSERT_TRUE(before.client->send({.type = 1}));
  const testing::OpenLimits limits;
  EXPECT_TRUE(run_task(loop, before.server->read_frame(limits)));
}

TEST_F(ListenerTest, ClosingDropsHandshakesInProgressWithoutAWord) {
  listen();
  const RawSocket silent(listener->port());
  loop.run_task(turns(20));
  loop.run_task(listener->close());
  EXPECT_EQ(refusals.size(), 0U);
}

TEST_F(ListenerTest, SaysWhyItCannotListen) {
  listen();
  const auto open = [&](const std::string& host, std::uint16_t port) {
    const auto tls = *TlsContext::make_server(
        coordinator, {{.protocol = Protocol::kSession, .client = testing::client_policy()}});
    const auto other = Listener::open(loop, tls, {.host = host, .port = port},
                                      {.on_connection = [](std::unique_ptr<Connection>) {}});
    EXPECT_EQ(other ? "listens" : other.error().code(), "cannot-listen");
    return other ? std::string() : other.error().message();
  };
  const auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
  };
  EXPECT_PRED2(says, open("127.0.0.1", listener->port()),
               "another program listens there already; end it ('ss -ltnp'");
  EXPECT_PRED2(says, open("192.0.2.1", 0), "this machine has no such address; name");
  EXPECT_PRED2(says, open("example.org", 0), "must be a numeric address");
}

TEST_F(ListenerTest, ServesIpv4AndIpv6FromOneSocket) {
  coordinator = *authority.issue_credentials(
      {.role = identity::Role::kCoordinator, .name = "hub", .addresses = {"127.0.0.1", "::1"}},
      kNow);
  const auto tls = *TlsContext::make_server(
      coordinator, {{.protocol = Protocol::kSession, .client = testing::client_policy()}});
  auto both = Listener::open(loop, tls, {.host = "::"},
                             {.on_connection = [this](std::unique_ptr<Connection> connection) {
                               connections.push(std::move(connection));
                             }});
  if (!both) GTEST_SKIP() << "no IPv6 here: " << both.error().message();
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto client =
        run_task(loop, connect(loop, host, (*both)->port(), client_tls(device()), {}));
    ASSERT_TRUE(client) << client.error().message();
    EXPECT_EQ(run_task(loop, connections.next())->remote_address(), host);
  }
  loop.run_task((*both)->close());
}

// Dialling.

class ConnectTest : public ListenerTest {
 protected:
  Result<std::unique_ptr<Connection>> dial_to(const std::string& host, std::uint16_t port,
                                              ConnectOptions options = {}) {
    return run_task(loop, connect(loop, host, port, client_tls(device()), options));
  }
};

TEST_F(ConnectTest, SaysWhenNobodyListens) {
  listen();
  const std::uint16_t port = listener->port();
  loop.run_task(listener->close());
  const auto connected = dial_to("127.0.0.1", port);
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code(), "cannot-connect");
  EXPECT_EQ(connected.error().kind(), ErrorKind::kRetry);
  EXPECT_NE(connected.error().message().find(std::to_string(port)), std::string::npos);
}

TEST_F(ConnectTest, ResolvesNames) {
  coordinator = *authority.issue_credentials(
      {.role = identity::Role::kCoordinator, .name = "hub", .addresses = {"localhost"}}, kNow);
  listen();
  const auto connected = dial_to("localhost", listener->port());
  ASSERT_TRUE(connected) << connected.error().message();
}

TEST_F(ConnectTest, SaysWhenANameCannotBeResolved) {
  const auto connected = dial_to("no-such-host.invalid", 7443);
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code(), "cannot-resolve");
}

TEST_F(ConnectTest, KeepsToItsDeadlineWithASilentServer) {
  const testing::RawListener silent;  // the kernel accepts, nobody answers
  const auto connected = dial_to("127.0.0.1", silent.port(), {.deadline = milliseconds(50)});
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code(), "deadline");
}

TEST_F(ConnectTest, CanBeCancelled) {
  const testing::RawListener silent;
  std::optional<Result<std::unique_ptr<Connection>>> result;
  TaskGroup tasks(loop);
  tasks.spawn(
      store_result(connect(loop, "127.0.0.1", silent.port(), client_tls(device()), {}), result));
  loop.run_task(turns(20));
  loop.run_task(tasks.stop());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->error().code(), "cancelled");
}

}  // namespace
}  // namespace starling::net
