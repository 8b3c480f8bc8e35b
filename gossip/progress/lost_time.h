// SPDX-License-Identifier: Apache-2.0
// For how long a process stood still of itself, as a device that slept, while the others may have
// gone on. It explains how far ahead a single one of them is, once: what a peer leaves out for that
// is taken from it, so that nobody's word moves a peer further than its own standstill does. Waits
// for others are none: who waits is waited for.
#pragma once

#include <algorithm>

#include "core/base/clock.h"

namespace starling::gossip {

class LostTime {
 public:
  // By then it has heard where the others are, if it can reach them.
  static constexpr Duration kKept = std::chrono::minutes(1);
  // Exchanges with all neighbours, as usual, after which it is in step: more than a link holds
  // messages of.
  static constexpr int kInStep = 8;

  void add(Duration lost, TimePoint now) {
    lost_ = left(now) + lost;
    until_ = now + kKept;
    usual_ = 0;
  }
  void make_up_for(Duration time) { lost_ = std::max(lost_ - time, Duration::zero()); }
  // An exchange with all neighbours took as long as usual.
  void exchanged() {
    if (++usual_ >= kInStep) lost_ = {};
  }
  Duration left(TimePoint now) const { return now < until_ ? lost_ : Duration::zero(); }

 private:
  Duration lost_{};
  TimePoint until_{};
  int usual_ = 0;
};

}  // namespace starling::gossip
