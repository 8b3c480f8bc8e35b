// SPDX-License-Identifier: Apache-2.0
// How long a suspect may defend itself (Lifeguard, Dadgar et al. 2018): S_max if one member alone
// suspects it, down to S_min with the logarithm of the c of K others that confirm it:
//   S(c) = S_max - (S_max - S_min) * ln(c + 1) / ln(K + 1)
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"
#include "gossip/membership/swim_options.h"

namespace starling::gossip::membership {

struct SuspicionTimes {
  Duration min{};                 // S_min
  Duration max{};                 // S_max
  std::size_t confirmations = 0;  // K; with 0 every suspicion lasts S_min

  // Of a group of `members`.
  static SuspicionTimes of(const SwimOptions& options, std::size_t members);
};

class Suspicion {
 public:
  Suspicion(protocol::Member by, TimePoint began) : began_(began), accusers_{by} {}

  TimePoint began() const { return began_; }
  // Whether `by` is another one, and still counts.
  bool confirm(protocol::Member by, const SuspicionTimes& times);
  // S(c)
  Duration lasts(const SuspicionTimes& times) const;

 private:
  TimePoint began_;
  std::vector<protocol::Member> accusers_;  // c + 1 of them, at most K + 1
};

}  // namespace starling::gossip::membership
