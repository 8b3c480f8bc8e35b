// SPDX-License-Identifier: Apache-2.0
// How far ahead others can be: at most what the time explains since we were in step with them.
// What bounds the word of those who say that they are further, so that no liar moves anybody.
#pragma once

#include <optional>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip {

class AheadBound {
 public:
  // So many members must say the same, or one where a peer has no other neighbour.
  static constexpr std::size_t kWitnesses = 2;

  // We and the others are at `next` now. `excess`: that much longer than usual did the exchange
  // before take. Nothing tells whether all waited or we alone stood still (a device that slept
  // finds old messages), so that time still explains what is confirmed, until exchanges have been
  // as usual for a while.
  void in_step(protocol::Exchange next, TimePoint now, Duration excess = {});
  // We left exchanges out. What time is not used up by that explains what is confirmed next.
  void gone_to(protocol::Exchange next, Duration pace, TimePoint now);

  // The exchange that they have come to, had they gone on as exchanges went with us, which took
  // `pace` each: believed of a single one. None: it was never in step, or the pace is not known.
  std::optional<protocol::Exchange> alone(std::optional<Duration> pace, TimePoint now) const;
  // As far as witnesses are believed: those who do not wait for us may be faster, and `slack`
  // exchanges further where exchanges are not at the same time.
  std::optional<protocol::Exchange> confirmed(std::optional<Duration> pace, TimePoint now,
                                              protocol::Exchange slack = 0) const;

 private:
  struct Since {
    protocol::Exchange next = 0;
    TimePoint at{};
  };
  static protocol::Exchange explained(const Since& since, Duration pace, double factor,
                                      TimePoint now);

  std::optional<Since> in_step_;
  Duration excess_{};
  int usual_ = 0;  // exchanges in a row
};

}  // namespace starling::gossip
