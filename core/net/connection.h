// SPDX-License-Identifier: Apache-2.0
// An authenticated connection that carries frames both ways at once. Reading never waits for
// writing, so that a heartbeat or a cancel is never stuck behind a model or a slow reader.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/identity/peer_policy.h"
#include "core/net/event_loop.h"
#include "core/net/frame.h"
#include "core/net/tls_context.h"

namespace starling::net {

struct ConnectionOptions {
  std::size_t queue_bytes_max = 4 << 20;  // headers and payloads waiting in send()
  std::size_t queue_frames_max = 4096;
  std::size_t low_water_bytes = 128 * 1024;
  Duration idle_max = std::chrono::seconds(120);       // no byte from the other side
  Duration frame_max = std::chrono::seconds(60);       // from a frame's first byte to its last
  Duration stall_max = std::chrono::seconds(30);       // bytes to send, and none of them leaves
  std::uint64_t rekey_bytes = std::uint64_t{1} << 36;  // new TLS keys after so many sent
};

struct ConnectionCounters {
  std::uint64_t wire_bytes_in = 0;  // TLS records, handshake included
  std::uint64_t wire_bytes_out = 0;
  std::uint64_t frames_in = 0;
  std::uint64_t frames_out = 0;
};

// All members: loop thread only. Destroying a connection drops it at once; see close().
class Connection {
 public:
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The next frame; its views hold until the next call of read_frame or the end of the connection.
  // One call at a time; `limits` must outlive it. Errors, after each of which only close() makes
  // sense:
  //   closed            the other side closed in good order, between two frames
  //   connection-lost   the stream broke off
  //   cancelled         close(), abort() or a cancelled task
  //   idle              nothing came for idle_max; frame-deadline: a frame took longer than
  //                     frame_max; stalled: nothing could be sent for stall_max
  //   unexpected-frame, header-too-large, payload-too-large    against `limits`
  //   refused-*         the other side refused us after the handshake
  Async<Result<Frame>> read_frame(const FrameLimits& limits);

  // Queues a frame and returns at once; frames sent in one turn of the loop leave together.
  // "queue-full" (kOverloaded) beyond the limits, "closed" after close() or a failure. Requires: a
  // header of whole words, sizes within the constants of frame.h, type not kReadyFrame.
  [[nodiscard]] Result<void> send(OutgoingFrame frame);

  // Bytes of queued frames that are not encrypted yet.
  std::size_t queued_bytes() const;
  // `on_drained` runs, on the loop, whenever frames have left the queue and less than
  // low_water_bytes remain: a bulk sender then sends its next chunk. Null to take it away.
  void set_drain_handler(std::function<void()> on_drained);

  // In good order: refuses new frames, sends what is queued, says goodbye, waits until the other
  // side has closed too; drops the connection at the deadline, or at once in a cancelled
  // task. A pending read_frame ends with "cancelled".
  Async<void> close(TimePoint deadline);
  // At once.
  void abort();

  // Whom the certificate names; none on the serving side of an enrolment.
  const std::optional<identity::VerifiedPeer>& peer() const;
  Protocol protocol() const;
  const std::string& remote_address() const;  // numeric, without the port
  const ConnectionCounters& counters() const;
  // Keying material that only the two ends of this channel can compute (RFC 8446, 7.5).
  std::array<std::byte, 32> export_key(std::string_view label) const;

  struct Impl;  // of this library
  explicit Connection(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace starling::net
