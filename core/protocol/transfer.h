// SPDX-License-Identifier: Apache-2.0
// Bulk in pieces, under the receiver's credit: offsets are absolute, so that a transfer resumes
// after a reconnect and a repeated message does no harm. Neither half touches a socket.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/error.h"
#include "core/base/page_block.h"
#include "core/base/shared_bytes.h"

namespace starling::protocol {

struct TransferOptions {
  std::uint64_t chunk_bytes_max = 64 * 1024;
  std::uint64_t window_bytes = 1024 * 1024;  // how far the receiver lets the sender run ahead
};

// Sends `data` from `offset` on, never beyond the limit that the receiver has named.
class TransferSender {
 public:
  TransferSender(SharedBytes data, std::uint64_t chunk_bytes_max);

  // Starts or restarts at `offset`; "bad-offset" beyond the end.
  [[nodiscard]] Result<void> start(std::uint64_t offset, std::uint64_t limit);
  void extend(std::uint64_t limit);
  // Until the next start(): the connection that the credit was given on is gone.
  void stop() { limit_ = offset_; }
  struct Piece {
    std::uint64_t offset;
    SharedBytes bytes;
  };
  // The next piece, or nothing until more credit comes or the end is reached.
  std::optional<Piece> next();
  bool done() const { return offset_ == data_.size(); }

 private:
  SharedBytes data_;
  std::uint64_t chunk_bytes_max_;
  std::uint64_t offset_ = 0;
  std::uint64_t limit_ = 0;
};

// Counts what has arrived and says how much more may come.
class TransferReceiver {
 public:
  TransferReceiver(std::uint64_t total, std::uint64_t window_bytes);

  std::uint64_t total() const { return total_; }
  std::uint64_t received() const { return received_; }
  bool done() const { return received_ == total_; }
  // Goes on where an earlier connection broke off; tell_limit() follows. Requires: received <=
  // total.
  void resume(std::uint64_t received) { received_ = received; }
  // The highest offset the sender may reach; for an answer that names it.
  std::uint64_t tell_limit();
  // Takes a piece that starts where the last one ended; "bad-chunk" for a gap or one beyond the
  // limit that was told. A piece that was received before is skipped: false.
  [[nodiscard]] Result<bool> take(std::uint64_t offset, std::uint64_t bytes);
  // The new limit, where half a window has been consumed since the last one was told.
  std::optional<std::uint64_t> credit_due();

 private:
  std::uint64_t limit() const;

  std::uint64_t total_;
  std::uint64_t window_bytes_;
  std::uint64_t received_ = 0;
  std::uint64_t told_limit_ = 0;
};

// A receiver with its own aligned memory, for models (updates go to the store's spool). Keeps a
// single whole piece that has an owner by reference.
class ModelAssembler {
 public:
  ModelAssembler(std::uint64_t total, std::uint64_t window_bytes)
      : receiver_(total, window_bytes) {}

  TransferReceiver& receiver() { return receiver_; }
  [[nodiscard]] Result<void> take(std::uint64_t offset, const SharedBytes& piece);
  // Requires: receiver().done().
  SharedBytes finish() &&;

 private:
  TransferReceiver receiver_;
  std::shared_ptr<PageBlock> memory_;
  SharedBytes whole_;
};

}  // namespace starling::protocol
