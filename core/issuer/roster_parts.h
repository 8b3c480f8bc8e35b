// SPDX-License-Identifier: Apache-2.0
// A signed roster in pieces: whoever holds one sends a window of it and the receiver asks for the
// next, so that the sender keeps nothing and no queue grows. The same between issuer and members
// and among peers.
#pragma once

#include <optional>
#include <vector>

#include "core/identity/roster.h"
#include "core/protocol/messages.h"

namespace starling::issuer {

inline constexpr std::uint64_t kRosterWindowBytes = 1024 * 1024;

// Asks for whatever is newer than `held` (null: nothing is held).
protocol::RosterAsk ask_for_newer(const identity::Roster* held);

// What answers `ask`: the pieces of `roster` from the asked offset on, at most a window; none where
// it is not newer than what the asker holds. The pieces share the roster's bytes.
std::vector<protocol::Envelope> roster_parts(const identity::SignedRoster& roster,
                                             const protocol::RosterAsk& ask);

// Puts together what comes over one connection. Bounded by kRosterBytesMax; nothing is believed:
// what it yields is to be verified.
class RosterAssembler {
 public:
  struct Taken {
    std::optional<Bytes> whole;              // a roster, to be verified
    std::optional<protocol::RosterAsk> ask;  // to be sent: the next window
  };
  // Pieces of what is not newer than `held` (null: nothing is held) are passed over, as are those
  // that do not continue what has come; one at offset 0 begins anew.
  Taken take(const protocol::RosterPart& part, ByteView piece, const identity::Roster* held);

 private:
  struct Version {
    protocol::Epoch epoch = 0;
    std::uint64_t issued_ms = 0;
    friend auto operator<=>(const Version&, const Version&) = default;
  };
  static Version version_of(const identity::Roster* roster);

  Version version_;
  std::uint64_t total_ = 0;
  Bytes bytes_;
};

}  // namespace starling::issuer
