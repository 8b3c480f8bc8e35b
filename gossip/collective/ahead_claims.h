// SPDX-License-Identifier: Apache-2.0
// Members say that they are further than we are; a model is copied of those who can be believed. A
// single member is believed as far as the time explains, two as far as the fastest pace can be, and
// more than half of all without a bound (gossip/progress/ahead_bound.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"
#include "gossip/collective/exchange_pace.h"

namespace starling::collective {

class AheadClaims {
 public:
  struct Further {
    protocol::Progress next;               // to which these have come
    std::vector<protocol::Member> donors;  // of the model
    protocol::Member teller = 0;
  };
  // What can be believed, and the few members who alone say it; none if most members do.
  struct Believed {
    Further further;
    std::vector<protocol::Member> witnesses;
  };

  AheadClaims(std::size_t members, protocol::Exchange first) : claims_(members), pace_(first) {}

  void hear(protocol::Member from, Further further);
  void forget(protocol::Member from) { claims_[from].reset(); }
  bool has(protocol::Member from) const { return claims_[from].has_value(); }
  // A claim was believed, and no model came. No member is believed for `wait`, until an exchange
  // begins.
  void came_to_nothing(protocol::Member teller, TimePoint now, Duration wait);
  // We begin here: what lies before is no claim any more.
  void begin(protocol::Progress at);
  // The furthest claim that can be believed. `others`: how many members can be heard. More than
  // half of all members are always believed, and exactly half of them once in `wait`: a slower half
  // stays in step with itself, so that no time would explain the lead of the other half. Apart from
  // that a doubted member does not count, unless no other can be heard.
  std::optional<Believed> believed(std::size_t others,
                                   const std::function<bool(protocol::Member)>& is_doubted,
                                   TimePoint now, Duration wait);
  // Who claims to be as far.
  std::vector<protocol::Member> tellers(protocol::Progress next) const;
  // Whether to ask the members without a claim where they are, since no claim can be believed yet.
  // They have `wait` to answer. True once for a claim, and not before the others have answered
  // about another one.
  bool asks_others(TimePoint now, Duration wait);
  // When a claim that could not be believed may have become credible.
  std::optional<TimePoint> looks_at() const { return looks_at_; }
  // Whether a majority can be there by now, as far as the pace of exchanges tells.
  bool is_explainable(protocol::Progress at, TimePoint now) const;

  ExchangePace& pace() { return pace_; }
  const ExchangePace& pace() const { return pace_; }

 private:
  struct Claim {
    Further further;
    std::optional<TimePoint> answered_at = {};  // the others were asked, with time until then

    bool is_answered(TimePoint now) const { return answered_at && now >= *answered_at; }
  };
  bool is_believed(const Claim& claim, std::size_t witnesses, std::size_t others,
                   TimePoint now) const;

  std::vector<std::optional<Claim>> claims_;  // by member
  TimePoint answered_at_{};                   // all questions are
  std::optional<TimePoint> looks_at_;
  TimePoint ignored_until_{};  // all claims
  TimePoint half_believed_from_{};
  ExchangePace pace_;
};

// For the log of a member at `ours` that has to copy a model.
std::string left_behind(const AheadClaims::Further& further, protocol::Exchange ours,
                        const std::vector<std::string>& names);

}  // namespace starling::collective
