// SPDX-License-Identifier: Apache-2.0
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

#include "core/base/check.h"
#include "core/net/connection_impl.h"

namespace starling::net {

namespace asio = boost::asio;

namespace {

// After so many bytes without a pause the other connections have their turn.
constexpr std::uint64_t kWriteTurnBytes = 1 << 20;

std::size_t frame_bytes(const OutgoingFrame& frame) {
  return frame.header.size() + frame.payload.bytes.size();
}

}  // namespace

Result<void> Connection::Impl::send(OutgoingFrame frame) {
  if (failure || closing || write_failed) {
    return not_connected("closed", "the connection is closed; nothing more can be sent");
  }
  const std::size_t bytes = frame_bytes(frame);
  if (queue.size() >= options.queue_frames_max || queue_bytes + bytes > options.queue_bytes_max) {
    return overloaded("queue-full", "the other side takes what it is sent too slowly: " +
                                        std::to_string(queue.size()) + " frames of together " +
                                        format_byte_count(queue_bytes) + " are waiting");
  }
  queue.push_back(std::move(frame));
  queue_bytes += bytes;
  schedule_writing();
  return {};
}

void Connection::Impl::schedule_writing() {
  if (writing_scheduled || waiting_writable) return;
  writing_scheduled = true;
  asio::post(loop.context(), [self = shared_from_this()] {
    self->writing_scheduled = false;
    self->write();
  });
}

void Connection::Impl::write() {
  if (waiting_writable || write_failed) return;
  const std::uint64_t turn_end = counters.wire_bytes_out + kWriteTurnBytes;
  while (flush_output()) {
    if (queue.empty()) {
      engine.output().release();
      sent.cancel();
      return;
    }
    if (counters.wire_bytes_out >= turn_end) return schedule_writing();
    encrypt_queue();
    batch_bytes = std::min(2 * batch_bytes, kBatchBytesMax);
    if (write_failed) return;
  }
}

bool Connection::Impl::flush_output() {
  ByteQueue& output = engine.output();
  while (!output.empty()) {
    boost::system::error_code error;
    const ByteView bytes = output.view();
    const std::size_t taken = socket.write_some(asio::buffer(bytes.data(), bytes.size()), error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      output.park();
      batch_bytes = kBatchBytesMin;
      wait_writable();
      return false;
    }
    if (error) {
      fail_writing();
      return false;
    }
    output.consume(taken);
    counters.wire_bytes_out += taken;
    blocked_since.reset();
  }
  return true;
}

void Connection::Impl::wait_writable() {
  if (!blocked_since) blocked_since = loop.now();
  waiting_writable = true;
  // Whatever the outcome: a cancelled wait (close() wakes the reader so) is just begun again.
  socket.async_wait(asio::ip::tcp::socket::wait_write,
                    [self = shared_from_this()](boost::system::error_code) {
                      self->waiting_writable = false;
                      self->write();
                    });
}

void Connection::Impl::encrypt_queue() {
  RecordWriter writer(engine);
  bool good = true;
  while (good && !queue.empty() && engine.output().size() < batch_bytes) {
    const OutgoingFrame frame = std::move(queue.front());
    queue.pop_front();
    queue_bytes -= frame_bytes(frame);
    good = encrypt(writer, frame);
  }
  if (!good || !writer.flush()) return fail_writing();
  if (queue_bytes < options.low_water_bytes) {
    // Held here, because the handler may take itself away.
    const std::shared_ptr<const std::function<void()>> handler = on_drained;
    if (handler) (*handler)();
  }
}

bool Connection::Impl::encrypt(RecordWriter& writer, const OutgoingFrame& frame) {
  if (bytes_since_rekey >= options.rekey_bytes) {
    engine.renew_keys();
    bytes_since_rekey = 0;
  }
  const FrameHead head{.payload_bytes = static_cast<std::uint32_t>(frame.payload.bytes.size()),
                       .header_words = static_cast<std::uint16_t>(frame.header.size() / 8),
                       .type = frame.type};
  bytes_since_rekey += kHeadBytes + frame_bytes(frame);
  ++counters.frames_out;
  return writer.append(head.encode()) && writer.append(frame.header) &&
         writer.append(frame.payload.bytes);
}

// The reader is left to find out why by itself: the other side may have said so.
void Connection::Impl::fail_writing() {
  write_failed = true;
  queue.clear();
  queue_bytes = 0;
  blocked_since.reset();
  engine.output().consume(engine.output().size());
  engine.output().release();
  sent.cancel();
}

Async<bool> Connection::Impl::wait_sent(std::shared_ptr<Impl> self) {
  while (self->has_output() && !self->write_failed) {
    auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return false;
    auto [error] = co_await self->sent.async_wait(asio::as_tuple(asio::use_awaitable));
    static_cast<void>(error);
  }
  co_return !self->write_failed;
}

}  // namespace starling::net
