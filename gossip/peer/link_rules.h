// SPDX-License-Identifier: Apache-2.0
// What decides about links between two peers wherever they run: over connections (PeerLinks) and in
// virtual time (PeerNetwork).
#pragma once

#include <variant>

#include "core/base/clock.h"
#include "core/protocol/messages.h"

namespace starling::gossip {

// Of two that could dial each other the lower member does; the higher one only if nothing comes of
// it within this.
inline constexpr Duration kDialGrace = std::chrono::seconds(2);
// Two that dial each other at the same moment keep the link that the lower member dialled. A link
// that is older than this gives way to a new one: the other side knows that it is dead.
inline constexpr Duration kSameMoment = std::chrono::seconds(5);

// Whether a new link with a member takes the place of the present one, which is so old. A link is
// by us or by the other side.
inline bool replaces_link(bool new_is_by_us, bool present_is_by_us, Duration age,
                          bool we_are_lower) {
  if (new_is_by_us == present_is_by_us || age > kSameMoment) return true;
  return new_is_by_us == we_are_lower;
}

// On a sparse graph a link that this side does not keep is ended by whoever dialled it after so
// long without use. Longer than anybody waits for a part of a model (PeerOptions::patience_max).
// Who watches a member uses the link with it in every probe period.
inline constexpr Duration kIdleLink = std::chrono::seconds(90);

// Whether a message shows that its sender needs the link: greetings and rosters go to all that are
// there.
inline bool is_use(const protocol::Message& message) {
  return !std::holds_alternative<protocol::PeerHello>(message) &&
         !std::holds_alternative<protocol::RosterAsk>(message) &&
         !std::holds_alternative<protocol::RosterPart>(message) &&
         !std::holds_alternative<protocol::Ping>(message) &&
         !std::holds_alternative<protocol::Pong>(message) &&
         !std::holds_alternative<protocol::Bye>(message);
}

// For the link's TransferFlow; all else is for the peer.
inline bool is_for_flow(const protocol::Message& message) {
  return std::holds_alternative<protocol::VectorTransfer>(message) ||
         std::holds_alternative<protocol::Chunk>(message) ||
         std::holds_alternative<protocol::Credit>(message) ||
         std::holds_alternative<protocol::TaskEnded>(message);
}

}  // namespace starling::gossip
