// SPDX-License-Identifier: Apache-2.0
// Signs of life that are passed on (van Renesse, Minsky, Hayden, Middleware 1998): every member
// counts up once in a while, and tells the counts of all that it knows of to those near it. Whose
// count rises lives, and a way leads to it, though nobody here ever probes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip::membership {

class Heartbeats {
 public:
  Heartbeats(protocol::Member self, protocol::Member members, TimePoint now)
      : self_(self), counts_(members), risen_(members, now) {}

  void beat() { ++counts_[self_]; }
  // What another knows. Those whose count it raises, ascending; none where it is not of as many.
  // Counts are serial numbers (RFC 1982): whatever a liar says, the member's own next one is
  // higher.
  std::vector<protocol::Member> take(std::span<const std::uint64_t> counts, TimePoint now);
  const std::vector<std::uint64_t>& counts() const { return counts_; }  // [members]
  TimePoint risen(protocol::Member member) const { return risen_[member]; }

 private:
  protocol::Member self_;
  std::vector<std::uint64_t> counts_;
  std::vector<TimePoint> risen_;
};

}  // namespace starling::gossip::membership
