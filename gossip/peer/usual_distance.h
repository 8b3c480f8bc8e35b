// SPDX-License-Identifier: Apache-2.0
// Which vectors of others are too far from one's own to be of this run. It stops numbers that ruin
// a model at once (1e30); who lies within what is usual is a matter for robust aggregation.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "core/base/recent_median.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip {

// Far is beyond 16 times the median distance of what was accepted lately, of that sender or of all,
// and beyond 8 times the norm of one's own vector (1 is added to it: a model may begin at 0). As
// long as little was seen, beyond 1,000 times the norm. Nothing is learned from what is refused.
class UsualDistance {
 public:
  // Whether the sender's vector may be used; notes how far it was if so. O(d). What is not a
  // number is not used. Requires: as many elements as `own`.
  bool accepts(protocol::Member from, std::span<const float> theirs, std::span<const float> own);
  // How far a mean of members that agree on their models may be: as above, and 8 norms from the
  // beginning, where all begin near each other. No number where `own` is none. O(d).
  double limit_of_mean(std::span<const float> own) const;
  // Of a model that is copied: kRefused beyond 8 times the norm of one's own, which is of exchange
  // `ours`. In the first eight, where one's own may be hardly trained, kSuspect: kRefused beyond
  // 1,000 times. O(d).
  enum class Copied { kNear, kSuspect, kRefused };
  static Copied judge_copied(std::span<const float> theirs, std::span<const float> own,
                             protocol::Exchange ours);
  // The members are others: what is usual of all stays.
  void forget_members();
  // Of the last vector that was judged, and what it was held against.
  double distance() const { return distance_; }
  double limit() const { return limit_; }
  // Who last sent a vector that was used though it was more than 8 times as far as one's own is
  // long, as may be at first: if anybody spoilt the model, this member did.
  std::optional<protocol::Member> suspect() const { return suspect_; }

 private:
  double limit_of(protocol::Member from, double norm) const;

  std::map<protocol::Member, RecentMedian> by_sender_;
  RecentMedian of_all_;
  double distance_ = 0;
  double limit_ = 0;
  std::optional<protocol::Member> suspect_;
};

}  // namespace starling::gossip
