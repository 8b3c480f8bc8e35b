// SPDX-License-Identifier: Apache-2.0
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>

#include "core/net/connection_impl.h"
#include "core/net/deadline.h"

namespace starling::net {

namespace asio = boost::asio;

namespace {

// What a refused peer may still send before its connection is cut.
constexpr std::size_t kLingerBytesMax = 256 * 1024;

}  // namespace

Async<void> Connection::Impl::close(std::shared_ptr<Impl> self, TimePoint deadline) {
  const bool again = std::exchange(self->closing, true);
  if (again || self->failure) {
    self->fail(cancelled_error());
    co_return;
  }
  boost::system::error_code ignored;
  self->on_drained = nullptr;
  self->socket.cancel(ignored);  // wakes a reader
  self->closing_timer.expires_at(deadline);
  self->closing_timer.async_wait([self](boost::system::error_code error) {
    if (!error) self->fail(cancelled_error());
  });
  self->write();
  auto all_sent = co_await wait_sent(self);
  if (all_sent) {
    self->engine.shut_down();
    self->write();
    auto goodbye_sent = co_await wait_sent(self);
    static_cast<void>(goodbye_sent);
    self->socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    co_await discard_input(self);
  }
  self->fail(cancelled_error());
}

Async<void> Connection::Impl::linger(std::shared_ptr<Impl> self, TimePoint deadline) {
  self->write();
  boost::system::error_code ignored;
  self->socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  auto discarding = discard_input(self);
  auto in_time = co_await run_until(self->loop, deadline, std::move(discarding));
  static_cast<void>(in_time);
  self->fail(cancelled_error());
}

// Never decrypted: a socket that is closed with unread input would take our last words with it.
Async<void> Connection::Impl::discard_input(std::shared_ptr<Impl> self) {
  self->engine.input().consume(self->engine.input().size());
  std::size_t left = self->closing ? SIZE_MAX : kLingerBytesMax;
  while (!self->failure) {
    const MutableByteView space = self->engine.input().space();
    boost::system::error_code error;
    const std::size_t bytes =
        self->socket.read_some(asio::buffer(space.data(), space.size()), error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      auto ready = co_await wait_for(self, Input::kWait);
      if (!ready) co_return;
      continue;
    }
    if (error || bytes >= left) co_return;
    left -= bytes;
  }
}

}  // namespace starling::net
