// SPDX-License-Identifier: Apache-2.0
#include "core/net/listener.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <unordered_map>

#include "core/base/check.h"
#include "core/identity/host_port.h"
#include "core/net/alarm.h"
#include "core/net/arrival_slots.h"
#include "core/net/connection_impl.h"
#include "core/net/deadline.h"
#include "core/net/socket_options.h"
#include "core/net/task_group.h"

namespace starling::net {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr auto kPauseAfterFailedAccept = std::chrono::milliseconds(100);
constexpr auto kLingerMax = std::chrono::seconds(1);

Error cannot_listen(const ListenerOptions& options, const std::string& why) {
  const std::string where = identity::HostPort{.host = options.host, .port = options.port}.text();
  return rejected("cannot-listen", "cannot listen on " + where + ": " + why);
}

// What happened, and what to do.
std::string advice(const boost::system::error_code& error) {
  if (error == asio::error::address_in_use) {
    return "another program listens there already; end it ('ss -ltnp' shows which it is), or "
           "choose "
           "another port";
  }
  if (error == boost::system::errc::address_not_available) {
    return "this machine has no such address; name one of its own, or 0.0.0.0 for all of them";
  }
  return error.message();
}

}  // namespace

struct Listener::Impl : std::enable_shared_from_this<Impl> {
  Impl(EventLoop& event_loop, std::shared_ptr<const TlsContext> with_tls,
       const ListenerOptions& with_options, ListenerHandlers with_handlers)
      : loop(event_loop),
        tls(std::move(with_tls)),
        options(with_options),
        handlers(std::move(with_handlers)),
        acceptor(loop.context()),
        slot_free(loop.context()),
        slots({.slots_max = options.handshakes_max,
               .per_address_max = options.handshakes_per_address_max,
               .undisturbed = options.handshake_undisturbed}),
        tasks(loop) {}

  Result<void> open();
  static Async<void> accept(std::shared_ptr<Impl> self);
  static Async<void> close(std::shared_ptr<Impl> self);
  static Async<void> admit(std::shared_ptr<Impl> self, tcp::socket socket, std::string address);
  static Async<void> wait_for_slot(std::shared_ptr<Impl> self, TimePoint until);
  static Async<void> greet(std::shared_ptr<Impl> self, std::shared_ptr<Connection::Impl> peer,
                           ArrivalSlots::Id slot);
  static Async<void> turn_away(std::shared_ptr<Impl> self, std::shared_ptr<Connection::Impl> peer,
                               Error error);
  void begin(tcp::socket socket, const std::string& address);
  void refuse(const std::string& address, const Error& error);
  void evict(ArrivalSlots::Id slot);
  void leave(ArrivalSlots::Id slot);

  EventLoop& loop;
  std::shared_ptr<const TlsContext> tls;
  ListenerOptions options;
  ListenerHandlers handlers;
  tcp::acceptor acceptor;
  asio::steady_timer slot_free;  // cancelled when a handshake ends
  ArrivalSlots slots;
  std::unordered_map<ArrivalSlots::Id, std::shared_ptr<Connection::Impl>> handshakes;
  unsigned lingering = 0;  // refused, reading why; they hold no slot
  TaskGroup tasks;
};

Result<void> Listener::Impl::open() {
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(options.host, error);
  if (error) return cannot_listen(options, "the host must be a numeric address");
  const tcp::endpoint endpoint(address, options.port);
  boost::system::error_code ignored;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && address.is_v6()) acceptor.set_option(asio::ip::v6_only(false), ignored);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot_listen(options, advice(error));
  return {};
}

Async<void> Listener::Impl::accept(std::shared_ptr<Impl> self) {
  while (self->acceptor.is_open()) {
    tcp::socket socket(self->loop.context());
    // The address that came with the connection: after a reset the socket has none.
    tcp::endpoint remote;
    auto [error] =
        co_await self->acceptor.async_accept(socket, remote, asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::operation_aborted) co_return;
    if (!error) {
      auto admission = admit(self, std::move(socket), numeric_address(remote));
      co_await std::move(admission);
    } else if (error != asio::error::connection_aborted) {
      // Out of descriptors or memory: what is open must end before more can begin.
      auto slept = co_await sleep_until(self->loop, self->loop.now() + kPauseAfterFailedAccept);
      if (!slept) co_return;
    }
  }
}

Async<void> Listener::Impl::admit(std::shared_ptr<Impl> self, tcp::socket socket,
                                  std::string address) {
  if (self->handlers.may_connect && !self->handlers.may_connect(address)) {
    self->refuse(address, overloaded("rate-limited", address + " begins connections too often"));
    co_return;
  }
  ArrivalSlots::Verdict verdict = self->slots.verdict_on(address, self->loop.now());
  while (verdict.answer == ArrivalSlots::Answer::kWait) {
    co_await wait_for_slot(self, verdict.until);
    if (!self->acceptor.is_open()) co_return;
    verdict = self->slots.verdict_on(address, self->loop.now());
  }
  if (verdict.answer == ArrivalSlots::Answer::kRefuse) {
    self->refuse(address, overloaded("too-many-handshakes",
                                     address + " begins too many connections at a time"));
    co_return;
  }
  if (verdict.answer == ArrivalSlots::Answer::kEvict) self->evict(verdict.victim);
  self->begin(std::move(socket), address);
}

Async<void> Listener::Impl::wait_for_slot(std::shared_ptr<Impl> self, TimePoint until) {
  self->slot_free.expires_at(until);
  auto [error] = co_await self->slot_free.async_wait(asio::as_tuple(asio::use_awaitable));
  static_cast<void>(error);
}

void Listener::Impl::begin(tcp::socket socket, const std::string& address) {
  prepare_socket(socket, options.connection.stall_max);
  const auto peer = std::make_shared<Connection::Impl>(loop, std::move(socket), address, tls,
                                                       std::string(), options.connection);
  const ArrivalSlots::Id slot = slots.take(address, peer->counters, loop.now());
  handshakes.emplace(slot, peer);
  tasks.spawn(greet(shared_from_this(), peer, slot));
}

void Listener::Impl::refuse(const std::string& address, const Error& error) {
  if (handlers.on_refused) handlers.on_refused({.remote_address = address, .error = error});
}

void Listener::Impl::evict(ArrivalSlots::Id slot) {
  handshakes.at(slot)->fail(overloaded(
      "too-many-handshakes", "this handshake made no progress and had to make room for others"));
  leave(slot);
}

void Listener::Impl::leave(ArrivalSlots::Id slot) {
  if (!slots.leave(slot)) return;
  handshakes.erase(slot);
  slot_free.cancel();
}

Async<void> Listener::Impl::greet(std::shared_ptr<Impl> self,
                                  std::shared_ptr<Connection::Impl> peer, ArrivalSlots::Id slot) {
  auto work = Connection::Impl::authenticate_server(peer);
  const TimePoint deadline = self->loop.now() + self->options.handshake_max;
  auto good = co_await with_deadline(self->loop, deadline, "the handshake", std::move(work));
  self->leave(slot);
  if (good && !peer->failure) {
    self->handlers.on_connection(std::make_unique<Connection>(peer));
    co_return;
  }
  auto refusal = turn_away(self, peer, peer->failure.value_or(good ? Error() : good.error()));
  co_await std::move(refusal);
}

Async<void> Listener::Impl::turn_away(std::shared_ptr<Impl> self,
                                      std::shared_ptr<Connection::Impl> peer, Error error) {
  if (self->acceptor.is_open()) {
    self->refuse(peer->remote_address, error);
    if (!peer->failure && self->lingering < self->options.handshakes_max) {
      ++self->lingering;
      co_await Connection::Impl::linger(peer, self->loop.now() + kLingerMax);
      --self->lingering;
    }
  }
  peer->fail(error);
}

Async<void> Listener::Impl::close(std::shared_ptr<Impl> self) {
  boost::system::error_code ignored;
  self->acceptor.close(ignored);
  co_await self->tasks.stop();
}

Listener::Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Listener::~Listener() { STARLING_CHECK(!impl_->acceptor.is_open() && impl_->tasks.size() == 0); }

Result<std::unique_ptr<Listener>> Listener::open(EventLoop& loop,
                                                 std::shared_ptr<const TlsContext> tls,
                                                 ListenerOptions options,
                                                 ListenerHandlers handlers) {
  STARLING_CHECK(tls != nullptr && handlers.on_connection != nullptr);
  const auto impl = std::make_shared<Impl>(loop, std::move(tls), options, std::move(handlers));
  STARLING_TRY(impl->open());
  impl->tasks.spawn(Impl::accept(impl));
  return std::unique_ptr<Listener>(new Listener(impl));
}

std::uint16_t Listener::port() const {
  boost::system::error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

void Listener::set_tls(std::shared_ptr<const TlsContext> tls) {
  STARLING_CHECK(tls != nullptr);
  impl_->tls = std::move(tls);
}

Async<void> Listener::close() { return Impl::close(impl_); }

}  // namespace starling::net
