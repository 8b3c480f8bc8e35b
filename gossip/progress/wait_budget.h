// SPDX-License-Identifier: Apache-2.0
// For how long another may hold a peer up: what it was waited for beyond the usual is taken from
// the budget, and comes back little by little. So however it times its messages, it stops a peer
// for the whole budget once, and for a share of the time from then on.
#pragma once

#include <algorithm>

#include "core/base/clock.h"

namespace starling::gossip {

class WaitBudget {
 public:
  static constexpr int kForgiven = 10;

  // What is spent comes back in so many times as long.
  explicit WaitBudget(int forgiven = kForgiven) : forgiven_(forgiven) {}

  // Of a budget that was `total` at first. Never negative.
  Duration left(Duration total, TimePoint now) const {
    return std::max(total - owed(now), Duration::zero());
  }
  Duration owed(TimePoint now) const {
    return std::max(owed_ - (now - since_) / forgiven_, Duration::zero());
  }
  void spend(Duration wait, TimePoint now) {
    owed_ = owed(now) + wait;
    since_ = now;
  }

 private:
  int forgiven_;
  Duration owed_{};
  TimePoint since_{};
};

}  // namespace starling::gossip
