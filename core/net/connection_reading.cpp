// SPDX-License-Identifier: Apache-2.0
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "core/base/check.h"
#include "core/net/connection_impl.h"

namespace starling::net {

namespace asio = boost::asio;

namespace {

// After so much without a pause the other connections have their turn: small frames cost as much as
// large ones, and those who handle them take their time.
constexpr std::size_t kReadTurnBytes = 1 << 20;
constexpr unsigned kReadTurnFrames = 256;
constexpr Duration kReadTurnTime = std::chrono::milliseconds(1);

// Of somebody who has not authenticated: more than the longest handshake that our limits on
// certificate chains allow, and a request to join.
constexpr std::uint64_t kStrangerBytesMax = 64 * 1024;
// Records without data, which cost more than their bytes: those of a handshake and some more, then
// one in so many bytes. We ourselves send one in 64 GiB.
constexpr std::uint64_t kDatalessRecordsMax = 64;
constexpr std::uint64_t kBytesPerDatalessRecord = 1 << 20;

// Marks a coroutine that reads, to its end by whatever way.
class ReadingMark {
 public:
  explicit ReadingMark(bool& reading) : reading_(reading) {
    STARLING_CHECK(!reading_);
    reading_ = true;
  }
  ~ReadingMark() { reading_ = false; }
  ReadingMark(const ReadingMark&) = delete;
  ReadingMark& operator=(const ReadingMark&) = delete;

 private:
  bool& reading_;
};

}  // namespace

Async<Result<Frame>> Connection::Impl::read_frame(std::shared_ptr<Impl> self,
                                                  const FrameLimits& limits) {
  const ReadingMark mark(self->reading);
  if (self->assembler.is_complete()) self->assembler.next();
  if (self->turn_is_over()) {
    auto ready = co_await wait_for(self, Input::kYield);
    if (!ready) co_return ready.error();
  }
  for (;;) {
    Input input = Input::kWait;
    auto frame = self->next_frame(limits, input);
    if (frame) co_return std::move(*frame);
    auto ready = co_await wait_for(self, input);
    if (!ready) co_return ready.error();
  }
}

std::optional<Result<Frame>> Connection::Impl::next_frame(const FrameLimits& limits, Input& input) {
  for (;;) {
    if (failure) return *failure;
    if (closing) return cancelled_error();
    if (read_error) return *read_error;
    const auto [status, bytes] = engine.read(assembler.space());
    if (status == TlsEngine::Status::kDone) {
      if (!assembler.is_inside_frame()) frame_since = loop.now();
      const Result<bool> complete = assembler.commit(bytes, limits);
      if (!complete) {
        read_error = complete.error();
        continue;
      }
      if (!*complete) continue;
      frame_since.reset();
      ++counters.frames_in;
      ++turn_frames;
      return assembler.frame();
    }
    if (status == TlsEngine::Status::kClosed || status == TlsEngine::Status::kFailed) {
      return read_failure(status);
    }
    const Result<Input> received = receive(status);
    if (!received) {
      read_error = received.error();
    } else if (*received != Input::kReady) {
      input = *received;
      return {};
    }
  }
}

Result<Frame> Connection::Impl::read_failure(TlsEngine::Status status) {
  if (status == TlsEngine::Status::kFailed) {
    read_error = engine.error();
    write();  // the alert that says why
  } else if (assembler.is_inside_frame()) {
    read_error =
        not_connected("connection-lost", "the other side closed the connection inside a frame");
  } else {
    read_error = not_connected("closed", "the other side closed the connection");
  }
  return *read_error;
}

bool Connection::Impl::turn_is_over() const {
  return turn_bytes >= kReadTurnBytes || turn_frames >= kReadTurnFrames ||
         loop.now() - turn_began >= kReadTurnTime;
}

Result<void> Connection::Impl::check_input() const {
  if (!engine.peer() && counters.wire_bytes_in > kStrangerBytesMax) {
    return rejected("too-much-input", "the other side sent more than " +
                                          format_byte_count(kStrangerBytesMax) +
                                          " without saying who it is");
  }
  if (engine.dataless_records() >
      kDatalessRecordsMax + counters.wire_bytes_in / kBytesPerDatalessRecord) {
    return rejected("too-many-empty-records",
                    "the other side sends too many TLS records without data");
  }
  return {};
}

Result<Connection::Impl::Input> Connection::Impl::receive(TlsEngine::Status status) {
  STARLING_TRY(check_input());
  if (status == TlsEngine::Status::kSpent || turn_is_over()) return Input::kYield;
  const MutableByteView space = engine.input().space();
  boost::system::error_code error;
  const std::size_t bytes = socket.read_some(asio::buffer(space.data(), space.size()), error);
  if (error == asio::error::would_block || error == asio::error::try_again) return Input::kWait;
  if (error == asio::error::eof) {
    engine.end_input();
    return Input::kReady;
  }
  if (error) return lost_error(error);
  engine.input().commit(bytes);
  counters.wire_bytes_in += bytes;
  turn_bytes += bytes;
  return Input::kReady;
}

Async<Result<void>> Connection::Impl::wait_for(std::shared_ptr<Impl> self, Input input) {
  auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) co_return cancelled_error();
  if (input == Input::kYield) {
    co_await asio::post(self->loop.context(), asio::use_awaitable);
    self->begin_turn();
    co_return Result<void>();
  }
  // OpenSSL has taken all there was, so an idle connection holds no buffer.
  self->engine.input().release();
  if (!self->assembler.is_inside_frame()) self->assembler.release();
  self->waiting_since = self->loop.now();
  auto [error] = co_await self->socket.async_wait(asio::ip::tcp::socket::wait_read,
                                                  asio::as_tuple(asio::use_awaitable));
  self->waiting_since.reset();
  self->begin_turn();
  if (self->failure) co_return *self->failure;
  if (error) co_return cancelled_error();
  co_return Result<void>();
}

void Connection::Impl::begin_turn() {
  turn_began = loop.now();
  turn_bytes = 0;
  turn_frames = 0;
}

}  // namespace starling::net
