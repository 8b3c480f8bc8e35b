// SPDX-License-Identifier: Apache-2.0
// What carries the frames of a link between two peers: a connection of their own, or the issuer of
// their roster, who relays where neither can be dialled.
#pragma once

#include <memory>
#include <string>

#include "core/net/connection.h"
#include "gossip/peer/relay_line.h"

namespace starling::gossip {

class PeerChannel {
 public:
  struct Traffic {
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
  };
  virtual ~PeerChannel() = default;

  // Queues a frame. After an error only abort() and close() make sense.
  [[nodiscard]] virtual Result<void> send(const protocol::Envelope& envelope) = 0;
  // Whether bulk may follow at once.
  virtual bool has_room() const = 0;
  virtual Traffic traffic() const = 0;
  // Drops what is queued, where that harms nobody else.
  virtual void abort() = 0;
  // Resumes when all that was queued has left, at the deadline at the latest.
  virtual net::Async<void> close(TimePoint deadline) = 0;
};

class ConnectionChannel final : public PeerChannel {
 public:
  // Bulk follows while less than `queue_low` bytes wait.
  ConnectionChannel(std::shared_ptr<net::Connection> connection, std::size_t queue_low);

  Result<void> send(const protocol::Envelope& envelope) override;
  bool has_room() const override;
  Traffic traffic() const override;  // of TLS, the handshake included
  void abort() override;
  net::Async<void> close(TimePoint deadline) override;

 private:
  std::shared_ptr<net::Connection> connection_;
  std::size_t queue_low_;
};

class RelayChannel final : public PeerChannel {
 public:
  // The line must outlive the channel.
  RelayChannel(RelayLine& line, std::string peer);

  // A frame that the issuer brought from the peer. Errors as of link::from_relay.
  [[nodiscard]] Result<protocol::Envelope> receive(const protocol::Relay& relay,
                                                   const SharedBytes& payload,
                                                   const net::FrameLimits& limits);

  Result<void> send(const protocol::Envelope& envelope) override;
  bool has_room() const override { return line_.has_room(); }
  Traffic traffic() const override { return traffic_; }  // of the relayed frames
  void abort() override {}                               // the line is everybody's
  net::Async<void> close(TimePoint deadline) override;

 private:
  RelayLine& line_;
  std::string peer_;
  Traffic traffic_;
};

}  // namespace starling::gossip
