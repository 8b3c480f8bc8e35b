// SPDX-License-Identifier: Apache-2.0
#include "core/net/connection.h"

#include <boost/asio/io_context.hpp>

#include "core/base/check.h"
#include "core/net/connection_impl.h"

namespace starling::net {

namespace asio = boost::asio;

namespace {

// The other side's first frame, before it is given to a session.
class ReadyLimits final : public FrameLimits {
 public:
  std::optional<FrameBound> bound(std::uint16_t type) const override {
    if (type != kReadyFrame) return {};
    return FrameBound{.header_words_max = 0, .payload_bytes_max = 0};
  }
};

// What a session allows, without the frame that belongs to this library.
class SessionLimits final : public FrameLimits {
 public:
  explicit SessionLimits(const FrameLimits& limits) : limits_(limits) {}
  std::optional<FrameBound> bound(std::uint16_t type) const override {
    if (type == kReadyFrame) return {};
    return limits_.bound(type);
  }

 private:
  const FrameLimits& limits_;
};

Async<Result<Frame>> read_session_frame(std::shared_ptr<Connection::Impl> impl,
                                        const FrameLimits& limits) {
  const SessionLimits session(limits);
  auto frame = co_await Connection::Impl::read_frame(impl, session);
  co_return frame;
}

}  // namespace

Error cancelled_error() { return retry("cancelled", "the connection was given up by this side"); }

Error lost_error(const boost::system::error_code& code) {
  return not_connected("connection-lost", "the connection broke off: " + code.message());
}

Connection::Impl::Impl(EventLoop& event_loop, asio::ip::tcp::socket connected, std::string address,
                       std::shared_ptr<const TlsContext> tls, const std::string& host,
                       const ConnectionOptions& connection_options)
    : loop(event_loop),
      socket(std::move(connected)),
      options(connection_options),
      remote_address(std::move(address)),
      engine(std::move(tls), loop.buffers().records, host),
      assembler(loop.buffers().frames),
      turn_began(loop.now()),
      sent(loop.context(), TimePoint::max()),
      watchdog(loop.context()),
      closing_timer(loop.context()) {}

Async<Result<void>> Connection::Impl::handshake(std::shared_ptr<Impl> self) {
  for (;;) {
    if (self->failure) co_return *self->failure;
    const TlsEngine::Status status = self->engine.handshake();
    self->write();
    if (status == TlsEngine::Status::kDone) co_return Result<void>();
    if (status == TlsEngine::Status::kFailed) co_return self->engine.error();
    auto input = self->receive(status);
    if (!input) co_return input.error();
    if (*input == Input::kReady) continue;
    auto ready = co_await wait_for(self, *input);
    if (!ready) co_return ready.error();
  }
}

Async<Result<void>> Connection::Impl::authenticate_server(std::shared_ptr<Impl> self) {
  auto done = co_await handshake(self);
  if (!done) co_return done.error();
  const auto ready = FrameHead{.type = kReadyFrame}.encode();
  if (!self->engine.write(ready)) co_return self->engine.error();
  self->write();
  co_return Result<void>();
}

Async<Result<void>> Connection::Impl::authenticate_client(std::shared_ptr<Impl> self) {
  auto done = co_await handshake(self);
  if (!done) co_return done.error();
  const ReadyLimits limits;
  auto ready = co_await read_frame(self, limits);
  if (!ready) co_return ready.error();
  co_return Result<void>();
}

void Connection::Impl::fail(const Error& reason) {
  if (failure) return;
  failure = reason;
  fail_writing();
  on_drained = nullptr;
  boost::system::error_code ignored;
  socket.close(ignored);
  watchdog.cancel();
  closing_timer.cancel();
}

void Connection::Impl::watch() {
  const Duration limit = std::min({options.idle_max, options.frame_max, options.stall_max});
  watchdog.expires_after(limit / 4);
  watchdog.async_wait([self = shared_from_this()](boost::system::error_code error) {
    if (error || self->failure) return;
    if (const auto late = self->overdue(self->loop.now())) {
      self->fail(*late);
    } else {
      self->watch();
    }
  });
}

std::optional<Error> Connection::Impl::overdue(TimePoint now) const {
  if (blocked_since && now - *blocked_since >= options.stall_max) {
    return timed_out("stalled",
                     "the other side took nothing for " + format_duration(options.stall_max));
  }
  if (!waiting_since) return {};
  if (frame_since && now - *frame_since >= options.frame_max) {
    return timed_out("frame-deadline",
                     "a frame took longer than " + format_duration(options.frame_max));
  }
  if (now - *waiting_since >= options.idle_max) {
    return timed_out("idle", "the other side was silent for " + format_duration(options.idle_max));
  }
  return {};
}

Connection::Connection(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) { impl_->watch(); }

Connection::~Connection() { abort(); }

Async<Result<Frame>> Connection::read_frame(const FrameLimits& limits) {
  return read_session_frame(impl_, limits);
}

Result<void> Connection::send(OutgoingFrame frame) {
  STARLING_CHECK(frame.type != kReadyFrame && frame.header.size() % 8 == 0 &&
                 frame.header.size() / 8 <= kHeaderWordsMax &&
                 frame.payload.bytes.size() <= kPayloadBytesMax);
  return impl_->send(std::move(frame));
}

std::size_t Connection::queued_bytes() const { return impl_->queue_bytes; }

void Connection::set_drain_handler(std::function<void()> on_drained) {
  impl_->on_drained =
      on_drained ? std::make_shared<const std::function<void()>>(std::move(on_drained)) : nullptr;
}

Async<void> Connection::close(TimePoint deadline) { return Impl::close(impl_, deadline); }

void Connection::abort() { impl_->fail(cancelled_error()); }

const std::optional<identity::VerifiedPeer>& Connection::peer() const {
  return impl_->engine.peer();
}
Protocol Connection::protocol() const { return impl_->engine.protocol(); }
const std::string& Connection::remote_address() const { return impl_->remote_address; }
const ConnectionCounters& Connection::counters() const { return impl_->counters; }
std::array<std::byte, 32> Connection::export_key(std::string_view label) const {
  return impl_->engine.export_key(label);
}

}  // namespace starling::net
