// SPDX-License-Identifier: Apache-2.0
// What stands behind a Connection. All decisions are plain functions that never wait; the
// coroutines only wait for the socket between two of them. For sources of this folder only.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>

#include "core/net/connection.h"
#include "core/net/frame_assembler.h"
#include "core/net/record_writer.h"
#include "core/net/tls_engine.h"

namespace starling::net {

struct Connection::Impl : std::enable_shared_from_this<Impl> {
  // `address`: the other side's, numeric; `host`: what a client has dialled.
  Impl(EventLoop& event_loop, boost::asio::ip::tcp::socket connected, std::string address,
       std::shared_ptr<const TlsContext> tls, const std::string& host,
       const ConnectionOptions& connection_options);

  // Life (connection.cpp).

  // The handshake, then the serving side's word that all is well.
  static Async<Result<void>> authenticate_server(std::shared_ptr<Impl> self);
  static Async<Result<void>> authenticate_client(std::shared_ptr<Impl> self);
  static Async<Result<void>> handshake(std::shared_ptr<Impl> self);
  // Drops the connection; whoever waits gets `reason`. The first reason stays.
  void fail(const Error& reason);
  // Watches for silence and stalls from now on. Requires: authenticated.
  void watch();
  std::optional<Error> overdue(TimePoint now) const;

  // Reading (connection_reading.cpp).

  enum class Input { kReady, kWait, kYield };
  static Async<Result<Frame>> read_frame(std::shared_ptr<Impl> self, const FrameLimits& limits);
  // Waits for the socket, or just lets others run.
  static Async<Result<void>> wait_for(std::shared_ptr<Impl> self, Input input);
  // What can be said without waiting; otherwise `input` says what to wait for.
  std::optional<Result<Frame>> next_frame(const FrameLimits& limits, Input& input);
  Result<Frame> read_failure(TlsEngine::Status status);
  // More ciphertext for the engine, which has just answered `status`.
  Result<Input> receive(TlsEngine::Status status);
  // What the other side may send at all.
  Result<void> check_input() const;
  void begin_turn();
  bool turn_is_over() const;

  // Writing (connection_writing.cpp).

  Result<void> send(OutgoingFrame frame);
  // Encrypts and sends as much as the socket takes; goes on by itself when it takes more.
  void write();
  void schedule_writing();
  bool flush_output();
  void wait_writable();
  void encrypt_queue();
  bool encrypt(RecordWriter& writer, const OutgoingFrame& frame);
  void fail_writing();
  bool has_output() { return !queue.empty() || !engine.output().empty(); }
  // True when nothing is left to send; false if that will never be.
  static Async<bool> wait_sent(std::shared_ptr<Impl> self);

  // Closing (connection_closing.cpp).

  static Async<void> close(std::shared_ptr<Impl> self, TimePoint deadline);
  // Lets the other side read why it was refused: ends our half and drops what still comes.
  static Async<void> linger(std::shared_ptr<Impl> self, TimePoint deadline);
  static Async<void> discard_input(std::shared_ptr<Impl> self);

  EventLoop& loop;
  boost::asio::ip::tcp::socket socket;
  ConnectionOptions options;
  std::string remote_address;
  TlsEngine engine;
  FrameAssembler assembler;
  ConnectionCounters counters;

  std::optional<Error> failure;  // set: the socket is closed
  bool closing = false;

  bool reading = false;
  std::optional<Error> read_error;  // the stream cannot be read any further
  // What was read without letting others run.
  TimePoint turn_began;
  std::size_t turn_bytes = 0;
  unsigned turn_frames = 0;
  std::optional<TimePoint> waiting_since;  // for input
  std::optional<TimePoint> frame_since;    // the first byte of the unfinished frame

  std::deque<OutgoingFrame> queue;
  std::size_t queue_bytes = 0;
  // Encrypted at a time, before the socket gets it: less where the socket took less, for what it
  // does not take is kept, by each of a thousand slow connections. One more frame must fit into the
  // same buffer.
  static constexpr std::size_t kBatchBytesMin = 16 * 1024;
  static constexpr std::size_t kBatchBytesMax = 96 * 1024;
  std::size_t batch_bytes = kBatchBytesMax;
  std::shared_ptr<const std::function<void()>> on_drained;
  bool writing_scheduled = false;
  bool waiting_writable = false;
  bool write_failed = false;
  std::uint64_t bytes_since_rekey = 0;
  std::optional<TimePoint> blocked_since;  // no room in the socket

  boost::asio::steady_timer sent;  // never expires; cancelled when nothing is left to send
  boost::asio::steady_timer watchdog;
  boost::asio::steady_timer closing_timer;
};

Error cancelled_error();
Error lost_error(const boost::system::error_code& code);

}  // namespace starling::net
