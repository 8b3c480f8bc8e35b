// SPDX-License-Identifier: Apache-2.0
// Members say that they are further than we are; a model is copied of those who can be believed. A
// single member is believed as far as the time explains, two as far as the fastest pace can be, and
// more than half of all without a bound (gossip/progress/ahead_bound.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"
#include "gossip/collective/doubted_members.h"
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

  // `first`: the exchange that comes first here. `wait`: how long one waits for an answer.
  AheadClaims(std::size_t members, protocol::Member self, protocol::Exchange first, Duration wait)
      : self_(self), wait_(wait), claims_(members), doubted_(wait), pace_(first) {}

  // `has_left`: it has left an exchange in which it was to meet us; else it may be ahead without a
  // fault.
  void hear(protocol::Member from, protocol::Progress next, std::vector<protocol::Member> donors,
            bool has_left);
  void forget(protocol::Member from) { claims_[from].reset(); }
  bool has(protocol::Member from) const { return claims_[from].has_value(); }
  // The claim to follow from `ours` to a model of others: the furthest that can be believed.
  // `others`: how many members can be heard.
  std::optional<Further> follow(protocol::Progress ours, std::size_t others, TimePoint now);
  // A model came of the claim that was followed: its witnesses are doubted.
  void copied(TimePoint now);
  // We begin here: what lies before is no claim any more. If no model came of the claim that was
  // followed, its witnesses are doubted, and no member is believed for `wait` or until the next
  // exchange begins.
  void begin(protocol::Progress at, TimePoint now);
  // The furthest claim beyond `ours` that can be believed, of members of which one has left us.
  // More than half of all members always are, and exactly half of them once in `wait`: a slower
  // half stays in step with itself, so that no time would explain the lead of the other half. Apart
  // from that a doubted member does not count, unless no other can be heard.
  std::optional<Believed> believed(protocol::Progress ours, std::size_t others, TimePoint now);
  // Who claims to be as far.
  std::vector<protocol::Member> tellers(protocol::Progress next) const;
  // Whom to ask where they are, since no claim can be believed yet: the others, which have `wait`
  // to answer. Once for a claim, and not before they have answered about another one.
  std::vector<protocol::Member> to_ask(TimePoint now);
  // When a claim that could not be believed may have become credible.
  std::optional<TimePoint> looks_at() const { return looks_at_; }
  // For the log of a member at `ours` that has to copy a model.
  std::string left_behind(Further further, protocol::Exchange ours,
                          const std::vector<std::string>& names) const;
  // Whether a majority can be there by now, as far as the pace of exchanges tells.
  bool is_explainable(protocol::Progress at, TimePoint now) const;

  ExchangePace& pace() { return pace_; }
  const ExchangePace& pace() const { return pace_; }

 private:
  struct Claim {
    Further further;
    bool has_left = true;
    std::optional<TimePoint> answered_at = {};  // the others were asked, with time until then

    bool is_answered(TimePoint now) const { return answered_at && now >= *answered_at; }
  };
  bool is_believed(const Claim& claim, std::size_t witnesses, std::size_t others,
                   TimePoint now) const;

  protocol::Member self_;
  Duration wait_;
  std::vector<std::optional<Claim>> claims_;  // by member
  std::optional<Believed> followed_;          // until a model of it has come, or an exchange begins
  DoubtedMembers doubted_;
  TimePoint answered_at_{};  // all questions are
  std::optional<TimePoint> looks_at_;
  TimePoint ignored_until_{};  // all claims
  TimePoint half_believed_from_{};
  ExchangePace pace_;
};

}  // namespace starling::collective
