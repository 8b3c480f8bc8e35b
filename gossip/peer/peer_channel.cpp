// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/peer_channel.h"

#include "core/link/message_link.h"
#include "core/link/relayed_frame.h"

namespace starling::gossip {

using protocol::Envelope;

ConnectionChannel::ConnectionChannel(std::shared_ptr<net::Connection> connection,
                                     std::size_t queue_low)
    : connection_(std::move(connection)), queue_low_(queue_low) {}

Result<void> ConnectionChannel::send(const Envelope& envelope) {
  return link::send(*connection_, envelope);
}

bool ConnectionChannel::has_room() const { return connection_->queued_bytes() < queue_low_; }

PeerChannel::Traffic ConnectionChannel::traffic() const {
  const net::ConnectionCounters& counters = connection_->counters();
  return {counters.wire_bytes_in, counters.wire_bytes_out};
}

void ConnectionChannel::abort() { connection_->abort(); }

net::Async<void> ConnectionChannel::close(TimePoint deadline) {
  co_await connection_->close(deadline);
}

RelayChannel::RelayChannel(RelayLine& line, std::string peer)
    : line_(line), peer_(std::move(peer)) {}

Result<Envelope> RelayChannel::receive(const protocol::Relay& relay, const SharedBytes& payload,
                                       const net::FrameLimits& limits) {
  traffic_.bytes_in += link::frame_bytes(relay, payload);
  return link::from_relay(relay, payload, limits);
}

Result<void> RelayChannel::send(const Envelope& envelope) {
  STARLING_ASSIGN(const std::size_t bytes, line_.send(peer_, envelope));
  traffic_.bytes_out += bytes;
  return {};
}

// What waits goes out with the line.
net::Async<void> RelayChannel::close(TimePoint) { co_return; }

}  // namespace starling::gossip
