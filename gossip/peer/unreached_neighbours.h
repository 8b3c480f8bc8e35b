// SPDX-License-Identifier: Apache-2.0
// Neighbours that this peer has no link with, and why: named in the log and in reports once each
// has had the time to start.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip {

class UnreachedNeighbours {
 public:
  // How long a neighbour cannot be reached before that is logged: others may be starting.
  static constexpr Duration kStartMax = std::chrono::seconds(5);

  // The link with a neighbour is down. Counts "cannot-dial" and "shut-out" (shut_out.h) only, of
  // which the latest is what is named, and the first of several "shut-out".
  void failed(protocol::Member neighbour, const Error& why, TimePoint now);
  void reached(protocol::Member member) { neighbours_.erase(member); }
  void forget_all() { neighbours_.clear(); }

  // The lines to log now, one for each neighbour.
  std::vector<std::string> lines(TimePoint now);
  // What to report where `problem` (none: empty) is what else is wrong: that, unless this peer is
  // shut out and hears nobody. The word of a single member hides nothing else.
  std::string problem_beside(std::string problem, bool hears_nobody) const;

 private:
  struct Neighbour {
    TimePoint since;
    Error why;
    bool logged = false;
  };
  std::map<protocol::Member, Neighbour> neighbours_;
};

}  // namespace starling::gossip
