// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/tcp_proxy.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <list>
#include <map>
#include <vector>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "core/net/alarm.h"
#include "core/net/deadline.h"
#include "core/net/task_group.h"

namespace starling::gossip {

namespace asio = boost::asio;
using asio::ip::tcp;
using net::Async;

namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;
// A limited link moves this long's worth at a time, so that it flows and heeds changes.
constexpr double kSliceSeconds = 0.02;
constexpr auto kPauseAfterFailedAccept = std::chrono::milliseconds(100);

struct Piece {
  std::vector<char> bytes;
  TimePoint due;
};

// One direction of a connection: a reader fills the queue, a writer empties it.
struct Flow {
  Flow(asio::io_context& context, tcp::socket& source, tcp::socket& sink, const StreamKey& key)
      : from(source), to(sink), rng(key), readable(context), writable(context) {}

  // Whoever waits looks again.
  void wake() {
    readable.cancel();
    writable.cancel();
  }

  tcp::socket& from;
  tcp::socket& to;
  Rng rng;
  std::deque<Piece> queue;
  std::size_t queued_bytes = 0;
  std::size_t sent_of_front = 0;
  bool source_ended = false;
  TimePoint last_due;
  TimePoint link_free;          // when the limited link has moved what it was given
  asio::steady_timer readable;  // for the reader: there is room
  asio::steady_timer writable;  // for the writer: there is something, or its time has come
};

}  // namespace

struct TcpProxy::Impl : std::enable_shared_from_this<Impl> {
  struct Connection {
    Connection(asio::io_context& context, tcp::socket client, std::string from, std::uint64_t seed,
               std::uint32_t number)
        : dialler(std::move(from)),
          near(std::move(client)),
          far(context),
          flows{Flow(context, near, far, stream(seed, number, 0)),
                Flow(context, far, near, stream(seed, number, 1))} {}

    StreamKey stream(std::uint64_t seed, std::uint32_t number, std::uint32_t direction) const {
      return {.seed = seed,
              .purpose = Purpose::kNetwork,
              .node = hash_name(dialler),
              .round = number,
              .attempt = direction};
    }
    Flow& flow(Direction direction) { return flows[static_cast<std::size_t>(direction)]; }
    bool open() const { return near.is_open(); }
    // At once, so that both ends see a reset.
    void abort() {
      boost::system::error_code ignored;
      for (tcp::socket* socket : {&near, &far}) {
        if (!socket->is_open()) continue;
        socket->set_option(asio::socket_base::linger(true, 0), ignored);
        socket->close(ignored);
      }
      for (Flow& flow : flows) flow.wake();
    }

    std::string dialler;
    tcp::socket near;
    tcp::socket far;
    std::array<Flow, 2> flows;
    unsigned pumps = 4;  // a reader and a writer of each flow
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  Impl(net::EventLoop& event_loop, const Options& with_options)
      : loop(event_loop), options(with_options), acceptor(loop.context()), tasks(loop) {}

  Result<void> listen();
  const LinkCondition& condition(const Connection& connection, Direction direction) const;
  static Async<void> accept(std::shared_ptr<Impl> self);
  static Async<void> serve(std::shared_ptr<Impl> self, ConnectionPtr connection);
  static Async<void> dial(std::shared_ptr<Impl> self, ConnectionPtr connection);
  static Async<void> read(std::shared_ptr<Impl> self, ConnectionPtr connection,
                          Direction direction);
  static Async<void> write(std::shared_ptr<Impl> self, ConnectionPtr connection,
                           Direction direction);
  static Async<void> pump(std::shared_ptr<Impl> self, ConnectionPtr connection, Async<void> work);
  static Async<void> close(std::shared_ptr<Impl> self);
  void forget(const ConnectionPtr& connection);
  std::size_t take_slice(Connection& connection, Direction direction);
  void add(Connection& connection, Direction direction, std::vector<char> bytes);

  net::EventLoop& loop;
  Options options;
  tcp::endpoint target;
  tcp::acceptor acceptor;
  std::map<std::pair<std::string, Direction>, LinkCondition> conditions;
  std::list<ConnectionPtr> connections;
  std::map<std::string, std::uint32_t> dialled;  // connections so far, by dialler
  net::TaskGroup tasks;
};

Result<void> TcpProxy::Impl::listen() {
  boost::system::error_code error;
  boost::system::error_code bad_target;
  const auto address = asio::ip::make_address_v4(options.listen.host, error);
  target = tcp::endpoint(asio::ip::make_address_v4(options.target.host, bad_target),
                         options.target.port);
  if (!error) error = bad_target;
  if (!error) acceptor.open(tcp::v4(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(tcp::endpoint(address, options.listen.port), error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  return rejected("cannot-listen",
                  "the proxy cannot listen on " + options.listen.text() + ": " + error.message());
}

const LinkCondition& TcpProxy::Impl::condition(const Connection& connection,
                                               Direction direction) const {
  static const LinkCondition kGood;
  const auto found = conditions.find({connection.dialler, direction});
  return found == conditions.end() ? kGood : found->second;
}

Async<void> TcpProxy::Impl::accept(std::shared_ptr<Impl> self) {
  while (self->acceptor.is_open()) {
    tcp::socket socket(self->loop.context());
    auto [error] =
        co_await self->acceptor.async_accept(socket, asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {
      auto slept =
          co_await net::sleep_until(self->loop, self->loop.now() + kPauseAfterFailedAccept);
      if (!slept) co_return;
      continue;
    }
    boost::system::error_code gone;
    const std::string dialler = socket.remote_endpoint(gone).address().to_string();
    if (gone) continue;
    const auto connection =
        std::make_shared<Connection>(self->loop.context(), std::move(socket), dialler,
                                     self->options.seed, self->dialled[dialler]++);
    self->tasks.spawn(serve(self, connection));
  }
}

// From the dialler's own address: the target, too, sees who it is.
Async<void> TcpProxy::Impl::dial(std::shared_ptr<Impl> self, ConnectionPtr connection) {
  boost::system::error_code error;
  const auto source = asio::ip::make_address_v4(connection->dialler, error);
  if (!error) connection->far.open(tcp::v4(), error);
  if (!error) connection->far.bind(tcp::endpoint(source, 0), error);
  if (error) co_return connection->abort();
  auto [failed] =
      co_await connection->far.async_connect(self->target, asio::as_tuple(asio::use_awaitable));
  if (failed) co_return connection->abort();
  connection->near.set_option(tcp::no_delay(true), error);
  connection->far.set_option(tcp::no_delay(true), error);
}

Async<void> TcpProxy::Impl::serve(std::shared_ptr<Impl> self, ConnectionPtr connection) {
  self->connections.push_back(connection);
  const TimePoint deadline = self->loop.now() + self->options.connect_deadline;
  auto dialling = dial(self, connection);
  auto in_time = co_await net::run_until(self->loop, deadline, std::move(dialling));
  if (!in_time) connection->abort();
  if (!connection->open()) co_return self->forget(connection);
  for (const Direction direction : {Direction::kToTarget, Direction::kFromTarget}) {
    self->tasks.spawn(pump(self, connection, read(self, connection, direction)));
    self->tasks.spawn(pump(self, connection, write(self, connection, direction)));
  }
}

Async<void> TcpProxy::Impl::pump(std::shared_ptr<Impl> self, ConnectionPtr connection,
                                 Async<void> work) {
  co_await std::move(work);
  if (--connection->pumps == 0) self->forget(connection);
}

void TcpProxy::Impl::forget(const ConnectionPtr& connection) {
  boost::system::error_code ignored;
  connection->near.close(ignored);
  connection->far.close(ignored);
  connections.remove(connection);
}

void TcpProxy::Impl::add(Connection& connection, Direction direction, std::vector<char> bytes) {
  Flow& flow = connection.flow(direction);
  const LinkCondition& link = condition(connection, direction);
  const auto jitter = from_seconds(flow.rng.uniform() * to_seconds(link.jitter));
  flow.last_due = std::max(flow.last_due, loop.now() + link.delay + jitter);
  flow.queued_bytes += bytes.size();
  flow.queue.push_back({std::move(bytes), flow.last_due});
  flow.writable.cancel();
}

Async<void> TcpProxy::Impl::read(std::shared_ptr<Impl> self, ConnectionPtr connection,
                                 Direction direction) {
  Flow& flow = connection->flow(direction);
  while (connection->open()) {
    if (flow.queued_bytes >= self->options.buffer_bytes_max) {
      flow.readable.expires_at(TimePoint::max());
      auto [woken] = co_await flow.readable.async_wait(asio::as_tuple(asio::use_awaitable));
      static_cast<void>(woken);
      continue;
    }
    std::vector<char> bytes(kPieceBytes);
    const auto buffer = asio::buffer(bytes);
    auto [error, count] =
        co_await flow.from.async_read_some(buffer, asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::eof) break;
    if (error) co_return connection->abort();
    bytes.resize(count);
    bytes.shrink_to_fit();
    self->add(*connection, direction, std::move(bytes));
  }
  flow.source_ended = true;
  flow.wake();
}

// How much of the first piece may go now; 0: `writable` is set to when to look again.
std::size_t TcpProxy::Impl::take_slice(Connection& connection, Direction direction) {
  Flow& flow = connection.flow(direction);
  const LinkCondition& link = condition(connection, direction);
  const TimePoint now = loop.now();
  flow.writable.expires_at(TimePoint::max());
  if (flow.queue.empty() || link.held) return 0;
  const TimePoint from = std::max(flow.queue.front().due, flow.link_free);
  if (from > now) {
    flow.writable.expires_at(from);
    return 0;
  }
  const std::size_t left = flow.queue.front().bytes.size() - flow.sent_of_front;
  if (link.bytes_per_second <= 0) return left;
  const double slice = std::max(1.0, link.bytes_per_second * kSliceSeconds);
  const std::size_t count = std::min(left, static_cast<std::size_t>(slice));
  // A timer that came late is made up for, by one slice at most.
  flow.link_free = std::max(flow.link_free, now - from_seconds(kSliceSeconds)) +
                   from_seconds(static_cast<double>(count) / link.bytes_per_second);
  return count;
}

Async<void> TcpProxy::Impl::write(std::shared_ptr<Impl> self, ConnectionPtr connection,
                                  Direction direction) {
  Flow& flow = connection->flow(direction);
  while (connection->open() && !(flow.source_ended && flow.queue.empty())) {
    const std::size_t count = self->take_slice(*connection, direction);
    if (count == 0) {
      auto [woken] = co_await flow.writable.async_wait(asio::as_tuple(asio::use_awaitable));
      static_cast<void>(woken);
      continue;
    }
    const auto buffer = asio::buffer(flow.queue.front().bytes.data() + flow.sent_of_front, count);
    auto [error, sent] =
        co_await asio::async_write(flow.to, buffer, asio::as_tuple(asio::use_awaitable));
    if (error) co_return connection->abort();
    flow.queued_bytes -= sent;
    flow.sent_of_front += sent;
    if (flow.sent_of_front == flow.queue.front().bytes.size()) {
      flow.queue.pop_front();
      flow.sent_of_front = 0;
    }
    flow.readable.cancel();
  }
  boost::system::error_code ignored;
  if (connection->open()) flow.to.shutdown(tcp::socket::shutdown_send, ignored);
}

Async<void> TcpProxy::Impl::close(std::shared_ptr<Impl> self) {
  boost::system::error_code ignored;
  self->acceptor.close(ignored);
  for (const ConnectionPtr& connection : self->connections) connection->abort();
  co_await self->tasks.stop();
  self->connections.clear();
}

Result<std::unique_ptr<TcpProxy>> TcpProxy::open(net::EventLoop& loop, const Options& options) {
  const auto impl = std::make_shared<Impl>(loop, options);
  STARLING_TRY(impl->listen());
  impl->tasks.spawn(Impl::accept(impl));
  return std::unique_ptr<TcpProxy>(new TcpProxy(impl));
}

TcpProxy::~TcpProxy() { STARLING_CHECK(!impl_->acceptor.is_open() && impl_->tasks.size() == 0); }

std::uint16_t TcpProxy::port() const {
  boost::system::error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

void TcpProxy::set(const std::string& dialler, Direction direction,
                   const LinkCondition& condition) {
  impl_->conditions[{dialler, direction}] = condition;
  for (const auto& connection : impl_->connections) {
    if (connection->dialler == dialler) connection->flow(direction).wake();
  }
}

void TcpProxy::reset(const std::string& dialler) {
  for (const auto& connection : impl_->connections) {
    if (connection->dialler == dialler) connection->abort();
  }
}

std::size_t TcpProxy::connections() const { return impl_->connections.size(); }

Async<void> TcpProxy::close() { return Impl::close(impl_); }

}  // namespace starling::gossip
