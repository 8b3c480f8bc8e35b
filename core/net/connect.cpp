// SPDX-License-Identifier: Apache-2.0
#include "core/net/connect.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "core/identity/host_port.h"
#include "core/net/connection_impl.h"
#include "core/net/deadline.h"
#include "core/net/resolve.h"
#include "core/net/socket_options.h"

namespace starling::net {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

using Connected = Result<std::unique_ptr<Connection>>;

struct Dial {
  Dial(EventLoop& event_loop, std::string to_host, std::uint16_t to_port,
       std::shared_ptr<const TlsContext> with_tls, const ConnectOptions& with_options)
      : loop(event_loop),
        host(std::move(to_host)),
        port(to_port),
        tls(std::move(with_tls)),
        options(with_options) {}

  std::string where() const { return identity::HostPort{.host = host, .port = port}.text(); }

  EventLoop& loop;
  std::string host;
  std::uint16_t port;
  std::shared_ptr<const TlsContext> tls;
  ConnectOptions options;
};

Result<void> bind_to(tcp::socket& socket, const asio::ip::address& address, const tcp& family) {
  boost::system::error_code error;
  socket.open(family, error);
  if (!error) socket.bind(tcp::endpoint(address, 0), error);
  if (!error) return {};
  return rejected("cannot-bind", "cannot dial from " + address.to_string() + " (" +
                                     error.message() + "); it must be an address of this machine");
}

Async<Result<tcp::socket>> connect_to(EventLoop& loop, tcp::endpoint endpoint,
                                      asio::ip::address from) {
  tcp::socket socket(loop.context());
  if (!from.is_unspecified()) {
    const auto bound = bind_to(socket, from, endpoint.protocol());
    if (!bound) co_return bound.error();
  }
  auto [error] = co_await socket.async_connect(endpoint, asio::as_tuple(asio::use_awaitable));
  if (error == asio::error::operation_aborted) {
    co_return retry("cancelled", "the connection was given up by this side");
  }
  if (error) {
    co_return not_connected("cannot-connect",
                            "there is no answer (" + error.message() +
                                "); check that it runs, its address and firewalls");
  }
  co_return std::move(socket);
}

// One address after the other; the last one's error if none answers.
Async<Result<tcp::socket>> connect_to_any(std::shared_ptr<Dial> dial,
                                          std::vector<tcp::endpoint> endpoints) {
  Result<tcp::socket> socket = not_connected("cannot-resolve", "the name has no address");
  for (const tcp::endpoint& endpoint : endpoints) {
    auto attempt = connect_to(dial->loop, endpoint, dial->options.bind);
    const TimePoint deadline = dial->loop.now() + dial->options.attempt_deadline;
    socket = co_await with_deadline(dial->loop, deadline, "connecting", std::move(attempt));
    if (socket || socket.error().code() == "cancelled") break;
  }
  co_return std::move(socket);
}

Async<Connected> dial_out(std::shared_ptr<Dial> dial) {
  auto endpoints = co_await resolve(dial->loop, dial->host, dial->port);
  if (!endpoints) co_return endpoints.error();
  auto socket = co_await connect_to_any(dial, std::move(*endpoints));
  if (!socket) co_return socket.error();
  prepare_socket(*socket, dial->options.connection.stall_max);
  boost::system::error_code ignored;  // a connection that broke already has no address any more
  const std::string address = numeric_address(socket->remote_endpoint(ignored));
  const auto impl = std::make_shared<Connection::Impl>(
      dial->loop, std::move(*socket), address, dial->tls, dial->host, dial->options.connection);
  auto good = co_await Connection::Impl::authenticate_client(impl);
  if (!good) {
    impl->write();  // the alert that says why
    impl->fail(good.error());
    co_return good.error();
  }
  co_return std::make_unique<Connection>(impl);
}

}  // namespace

Async<Connected> connect(EventLoop& loop, std::string host, std::uint16_t port,
                         std::shared_ptr<const TlsContext> tls, ConnectOptions options) {
  const auto dial = std::make_shared<Dial>(loop, std::move(host), port, std::move(tls), options);
  const std::string what = "connecting to " + dial->where();
  const TimePoint deadline = loop.now() + options.deadline;
  auto work = dial_out(dial);
  auto connected = co_await with_deadline(loop, deadline, what, std::move(work));
  if (!connected) co_return connected.error().within(dial->where());
  co_return std::move(connected);
}

}  // namespace starling::net
