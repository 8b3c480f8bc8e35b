// SPDX-License-Identifier: Apache-2.0
// One end of a TLS connection without a socket: ciphertext goes in and out of two buffers that are
// held only while they hold something. For sources of this folder only.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/net/buffer_pool.h"
#include "core/net/tls_settings.h"

namespace starling::net {

// A contiguous queue of bytes in a borrowed buffer.
class ByteQueue {
 public:
  explicit ByteQueue(BufferPool& pool) : pool_(pool) {}

  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  ByteView view() const { return {(parked_ ? parked_.get() : buffer_.get()) + begin_, size()}; }
  // Free bytes behind the content; borrows a buffer. commit() makes the first of them content.
  MutableByteView space();
  void commit(std::size_t bytes) { end_ += bytes; }
  void consume(std::size_t bytes) { begin_ += bytes; }
  // Gives the buffer back. Requires: empty.
  void release();
  // The content may stay for long: it moves to a place of its own size, and the buffer goes back.
  void park();

 private:
  BufferPool& pool_;
  BufferPool::Buffer buffer_;
  std::unique_ptr<std::byte[]> parked_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

class TlsEngine {
 public:
  // kSpent: one call took as many records as it may; there is more input already.
  enum class Status { kDone, kWantsInput, kSpent, kClosed, kFailed };
  struct Transfer {
    Status status = Status::kDone;
    std::size_t bytes = 0;
  };

  // `host`: what a client has dialled; becomes the address of its policy unless that has one.
  TlsEngine(std::shared_ptr<const TlsContext> context, BufferPool& pool, const std::string& host);
  TlsEngine(const TlsEngine&) = delete;
  TlsEngine& operator=(const TlsEngine&) = delete;

  // Goes on with the handshake: anything but kClosed, perhaps with output to send.
  Status handshake();
  // At least one byte of plaintext, or why not. kClosed: the other side said goodbye.
  Transfer read(MutableByteView into);
  // Encrypts all of `bytes` into the output. Requires: output_room() is enough for them.
  bool write(ByteView bytes);
  // Says goodbye.
  void shut_down();
  // New keys for what we send from the next write on.
  void renew_keys();

  // Why handshake, read or write failed.
  const Error& error() const { return error_; }
  const std::optional<identity::VerifiedPeer>& peer() const { return peer_; }
  Protocol protocol() const { return protocol_; }
  std::array<std::byte, 32> export_key(std::string_view label) const;

  // Received records that held something else than data: handshake messages, new keys, alerts.
  std::uint64_t dataless_records() const { return dataless_records_; }

  ByteQueue& input() { return input_; }
  ByteQueue& output() { return output_; }
  // The other side will send nothing more.
  void end_input() { input_ended_ = true; }

  // For the callbacks of OpenSSL.
  Result<void> verify_peer(std::span<const identity::Certificate> presented);
  bool accept_protocol(std::string_view alpn);
  void refuse_protocol();

 private:
  static void on_message(int is_ours, int version, int type, const void* bytes, std::size_t size,
                         SSL* ssl, void* engine);
  static const BIO_METHOD* bio_method();
  static int bio_read(BIO* bio, char* into, int size);
  static int bio_write(BIO* bio, const char* from, int size);
  static long bio_control(BIO* bio, int command, long number, void* pointer);

  bool looks_like_tls();
  Status finish_handshake();
  Status fail(Error error);
  Status status_of(int result);
  std::optional<identity::Certificate> pinned_authority(
      std::span<const identity::Certificate> presented) const;

  std::shared_ptr<const TlsContext> context_;
  const TlsSettings& settings_;
  SslPointer ssl_;
  ByteQueue input_;
  ByteQueue output_;
  bool input_ended_ = false;
  bool saw_first_byte_ = false;
  unsigned records_of_call_ = 0;
  std::uint64_t dataless_records_ = 0;
  Protocol protocol_;
  std::optional<identity::PeerPolicy> policy_;
  std::optional<identity::VerifiedPeer> peer_;
  std::optional<Error> refusal_;  // decided in a callback
  Error error_;
};

}  // namespace starling::net
