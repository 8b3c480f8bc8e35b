// SPDX-License-Identifier: Apache-2.0
// Members whose claim to be further is not believed for now: it led to a copy of a model lately.
// The model does not show whether the claim was true, since whoever copies it goes on from there.
#pragma once

#include <map>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"

namespace starling::collective {

class DoubtedMembers {
 public:
  // `wait`: how long one waits for an answer.
  explicit DoubtedMembers(Duration wait) : wait_(wait) {}

  // A model came: doubted for a part of `wait`, and for twice as long each time, up to 64 times
  // `wait`. It is trusted again after as long without another such copy.
  void led_on(protocol::Member member, TimePoint now);
  // No model came: doubted for `wait` at least.
  void came_to_nothing(protocol::Member member, TimePoint now);
  bool contains(protocol::Member member, TimePoint now) const;

 private:
  // For a sixteenth of `wait`, doubled so often at least.
  void doubt(protocol::Member member, TimePoint now, unsigned doublings);

  struct Doubt {
    unsigned doublings = 0;
    TimePoint until{};
  };
  Duration wait_;
  std::map<protocol::Member, Doubt> doubts_;
};

}  // namespace starling::collective
