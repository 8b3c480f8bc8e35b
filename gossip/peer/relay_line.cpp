// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/relay_line.h"

#include <fmt/format.h>

#include "core/link/relayed_frame.h"

namespace starling::gossip {

using protocol::Envelope;

namespace {

std::size_t bytes_of(const Envelope& envelope) {
  return link::frame_bytes(std::get<protocol::Relay>(envelope.message), envelope.payload);
}

}  // namespace

RelayLine::RelayLine(Options options, Carrier carrier)
    : options_(options), carrier_(std::move(carrier)) {}

void RelayLine::open() { open_ = carrier_.send && carrier_.queued_bytes; }

void RelayLine::close() {
  open_ = false;
  waiting_.clear();
  waiting_bytes_ = 0;
}

bool RelayLine::is_busy() const { return carrier_.queued_bytes() >= options_.busy_bytes; }

bool RelayLine::has_room() const { return open_ && waiting_.empty() && !is_busy(); }

Result<std::size_t> RelayLine::send(const std::string& peer, const Envelope& envelope) {
  if (!open_) return not_connected("closed", "there is no link with the issuer that relays");
  STARLING_ASSIGN(protocol::Relay relay, link::to_relay(peer, envelope.message));
  const Envelope relayed{std::move(relay), envelope.payload};
  const std::size_t bytes = bytes_of(relayed);
  if (has_room()) {
    carrier_.send(relayed);
    return bytes;
  }
  const bool goodbye = std::holds_alternative<protocol::Bye>(envelope.message);
  if (!goodbye && waiting_bytes_ + bytes > options_.waiting_bytes_max) {
    return overloaded("queue-full",
                      fmt::format("{} bytes wait for the issuer that relays", waiting_bytes_));
  }
  waiting_.push_back(relayed);
  waiting_bytes_ += bytes;
  return bytes;
}

void RelayLine::flush() {
  while (!waiting_.empty() && !is_busy()) {
    const Envelope next = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= bytes_of(next);
    carrier_.send(next);
  }
}

}  // namespace starling::gossip
