// SPDX-License-Identifier: Apache-2.0
// A federation in a test: an authority, a listening coordinator and an event loop, with a clock
// that stands still. Real sockets on 127.0.0.1.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "core/identity/certificate_authority.h"
#include "core/net/connect.h"
#include "core/net/listener.h"
#include "core/net/task_group.h"

namespace starling::testing {

using net::Async;
using net::Connection;
using net::Protocol;

inline const WallTime kNow = *parse_rfc3339("2026-11-20T09:00:00Z");

// What callbacks leave and a coroutine takes, in order.
template <class T>
class Mailbox {
 public:
  explicit Mailbox(net::EventLoop& loop) : arrived_(loop.context(), TimePoint::max()) {}

  void push(T value) {
    values_.push_back(std::move(value));
    arrived_.cancel();
  }
  std::size_t size() const { return values_.size(); }

  Async<T> next() {
    while (values_.empty()) {
      auto [error] =
          co_await arrived_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
      static_cast<void>(error);
    }
    T value = std::move(values_.front());
    values_.pop_front();
    co_return std::move(value);
  }

 private:
  boost::asio::steady_timer arrived_;
  std::deque<T> values_;
};

inline identity::PeerPolicy policy(identity::RoleSet roles, WallTime now = kNow) {
  return {.federation = "kitchen", .roles = roles, .time = [now] {
            return identity::VerificationTime{.now = now};
          }};
}

inline identity::PeerPolicy client_policy() {
  return policy({identity::Role::kDevice, identity::Role::kOperator});
}
inline identity::PeerPolicy coordinator_policy() { return policy({identity::Role::kCoordinator}); }

inline std::shared_ptr<const net::TlsContext> client_tls(
    const identity::Credentials& credentials, identity::PeerPolicy server = coordinator_policy(),
    Protocol protocol = Protocol::kSession) {
  return *net::TlsContext::make_client(protocol, credentials, std::move(server));
}

// Any frame of any allowed size.
class OpenLimits final : public net::FrameLimits {
 public:
  std::optional<net::FrameBound> bound(std::uint16_t) const override {
    return net::FrameBound{.header_words_max = net::kHeaderWordsMax,
                           .payload_bytes_max = net::kPayloadBytesMax};
  }
};

// Derive a test fixture from it, or hold one in a TEST.
class Loopback {
 public:
  Loopback() : connections(loop), refusals(loop) {}
  ~Loopback() {
    if (listener) loop.run_task(listener->close());
  }

  void listen_for(std::vector<net::AcceptedProtocol> protocols, net::ListenerOptions options = {}) {
    listen_with(*net::TlsContext::make_server(coordinator, std::move(protocols)), options);
  }

  void listen(net::ListenerOptions options = {}) {
    listen_for({{.protocol = Protocol::kSession, .client = client_policy()}}, options);
  }

  void listen_with(std::shared_ptr<const net::TlsContext> tls, net::ListenerOptions options = {}) {
    options.host = "127.0.0.1";
    net::ListenerHandlers handlers;
    handlers.on_connection = [this](std::unique_ptr<Connection> connection) {
      connections.push(std::move(connection));
    };
    handlers.on_refused = [this](const net::Refusal& refusal) { refusals.push(refusal); };
    handlers.may_connect = may_connect;
    listener = *net::Listener::open(loop, std::move(tls), options, handlers);
  }

  identity::Credentials device(const std::string& name = "cam-7", WallTime at = kNow) const {
    return *authority.issue_credentials({.name = name}, at);
  }

  Async<Result<std::unique_ptr<Connection>>> dial(std::shared_ptr<const net::TlsContext> tls,
                                                  net::ConnectOptions options = {}) {
    return net::connect(loop, "127.0.0.1", listener->port(), std::move(tls), options);
  }

  // Both ends of a good connection.
  struct Pair {
    std::unique_ptr<Connection> client;
    std::unique_ptr<Connection> server;
  };
  Pair connect_pair(net::ConnectOptions options = {}) {
    return connect_pair(client_tls(device()), options);
  }
  Pair connect_pair(std::shared_ptr<const net::TlsContext> tls, net::ConnectOptions options = {}) {
    return net::run_task(loop, make_pair(std::move(tls), options));
  }

  // Lets everybody else run so many times.
  Async<void> turns(int count) {
    for (int i = 0; i < count; ++i) {
      co_await boost::asio::post(loop.context(), boost::asio::use_awaitable);
    }
  }

  net::EventLoop loop;
  identity::CertificateAuthority authority = *identity::CertificateAuthority::make(
      {.federation = "kitchen"}, kNow - std::chrono::hours(24 * 90));
  identity::Credentials coordinator = *authority.issue_credentials(
      {.role = identity::Role::kCoordinator, .name = "hub", .addresses = {"127.0.0.1"}}, kNow);
  Mailbox<std::unique_ptr<Connection>> connections;
  Mailbox<net::Refusal> refusals;
  std::function<bool(const std::string&)> may_connect;
  std::unique_ptr<net::Listener> listener;

 private:
  Async<Pair> make_pair(std::shared_ptr<const net::TlsContext> tls, net::ConnectOptions options) {
    auto client = co_await dial(std::move(tls), options);
    EXPECT_TRUE(client) << client.error().message();
    auto server = co_await connections.next();
    Pair pair;
    pair.client = std::move(*client);
    pair.server = std::move(server);
    co_return std::move(pair);
  }
};

}  // namespace starling::testing
