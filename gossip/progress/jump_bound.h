// SPDX-License-Identifier: Apache-2.0
// How far a peer goes on another's word: not further than it could have come by itself since the
// run began. AheadBound limits a jump by the time since a peer was in step; this limits the sum of
// all jumps, and holds before a peer knows what an exchange takes.
#pragma once

#include <optional>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip {

class JumpBound {
 public:
  // `age`: since when the run has been going on, at `now`; none where the roster does not say it:
  // then nothing is limited here.
  JumpBound(std::optional<Duration> age, TimePoint now);

  // The local steps of one exchange took this long. The quickest counts.
  void trained(Duration phase);

  // The furthest exchange that is believed where so many members confirm each other: what the
  // quickest phase allows in the run's age, times 4 for a single member and times 16 for several,
  // as others may be faster, and `slack` and 8 exchanges more. None: there is no limit. Before the
  // first phase nothing beyond the slack is believed. Requires: witnesses >= 1.
  std::optional<protocol::Exchange> limit(std::size_t witnesses, protocol::Exchange slack,
                                          TimePoint now) const;

 private:
  std::optional<TimePoint> began_;
  std::optional<Duration> quickest_;
};

}  // namespace starling::gossip
