// SPDX-License-Identifier: Apache-2.0
// The way of all relayed links out: this device's one link with its issuer, which other traffic
// uses too. What finds it busy waits here in order, within a limit.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "core/protocol/messages.h"

namespace starling::gossip {

class RelayLine {
 public:
  // The link with the issuer. Neither may call back.
  struct Carrier {
    std::function<void(const protocol::Envelope&)> send = nullptr;  // keeps the payload's owner
    std::function<std::size_t()> queued_bytes = nullptr;  // that wait there, whosever they are
  };
  struct Options {
    std::size_t busy_bytes = 256 * 1024;  // so many wait at the carrier: nothing more goes to it
    std::size_t waiting_bytes_max = 1024 * 1024;
  };

  // A carrier without functions never opens.
  RelayLine(Options options, Carrier carrier);

  void open();   // the issuer is there
  void close();  // it is not; what waits is forgotten
  bool is_open() const { return open_; }
  // Whether bulk may follow: nothing waits.
  bool has_room() const;

  // "queue-full" (kOverloaded) where too much waits, for anything but a goodbye; "closed" (kRetry);
  // the errors of wire::encode_header. The size of the frame that is on its way.
  [[nodiscard]] Result<std::size_t> send(const std::string& peer,
                                         const protocol::Envelope& envelope);
  // The carrier may have room again.
  void flush();
  std::size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  bool is_busy() const;

  Options options_;
  Carrier carrier_;
  bool open_ = false;
  std::deque<protocol::Envelope> waiting_;  // Relays
  std::size_t waiting_bytes_ = 0;
};

}  // namespace starling::gossip
