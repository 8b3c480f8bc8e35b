// SPDX-License-Identifier: Apache-2.0
// Members whose claim to be further is not believed for now: it led to a copy of a model lately.
// The model does not show whether the claim was true, since whoever copies it goes on from there.
#pragma once

#include <algorithm>
#include <map>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"

namespace starling::collective {

class DoubtedMembers {
 public:
  // `wait`: how long one waits for an answer.
  explicit DoubtedMembers(Duration wait) : shortest_(wait / (1U << kDoublingsToOne)) {}

  // A model came: doubted for 1/16 of a wait at first, so that a network whose members come back is
  // soon together again, for twice as long each time, and for 64 waits at most. Trusted again after
  // as long without another such copy.
  void led_on(protocol::Member member, TimePoint now) { doubt(member, now, 0); }
  // No model came: doubted for a whole wait at least.
  void came_to_nothing(protocol::Member member, TimePoint now) {
    doubt(member, now, kDoublingsToOne);
  }
  bool contains(protocol::Member member, TimePoint now) const {
    const auto doubt = doubts_.find(member);
    return doubt != doubts_.end() && now < doubt->second.until;
  }

 private:
  static constexpr unsigned kDoublingsToOne = 4;  // wait
  static constexpr unsigned kDoublingsMax = kDoublingsToOne + 6;

  void doubt(protocol::Member member, TimePoint now, unsigned doublings_min) {
    auto& [doublings, until] = doubts_[member];
    if (now >= until + shortest_ * (1U << kDoublingsMax)) doublings = 0;
    doublings = std::max(doublings, doublings_min);
    until = now + shortest_ * (1U << doublings);
    doublings = std::min(doublings + 1, kDoublingsMax);
  }

  struct Doubt {
    unsigned doublings = 0;  // next time
    TimePoint until{};
  };
  Duration shortest_;
  std::map<protocol::Member, Doubt> doubts_;
};

}  // namespace starling::collective
