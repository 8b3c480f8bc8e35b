// SPDX-License-Identifier: Apache-2.0
// Which other members are there, as far as this one knows: by what it heard of them, by the state
// of their links, and by deadlines that they missed.
#pragma once

#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/protocol/peer_messages.h"

namespace starling::collective {

class MemberLiveness {
 public:
  // A broken link is replaced by another within this, or the member is gone.
  static constexpr Duration kRelink = std::chrono::milliseconds(200);

  // `self` is never silent or down.
  MemberLiveness(std::size_t members, protocol::Member self) : self_(self), peers_(members) {}

  // A message or a new link: it is there.
  void heard(protocol::Member member, TimePoint now);
  // Where it is. It owes an answer until one comes: meanwhile it may be heard, and not hear us.
  void asked(protocol::Member member, TimePoint now);
  void answered(protocol::Member member) { peers_[member].asked_at.reset(); }
  bool owes_answer(protocol::Member member) const { return peers_[member].asked_at.has_value(); }
  // When it was asked first of what it owes, if nothing was heard of it after that.
  std::optional<TimePoint> unanswered_since(protocol::Member member) const;
  // It did not answer in time.
  void call_silent(protocol::Member member, TimePoint now);
  // From then on it is not waited for, until it is heard: it has passed this exchange, or was
  // missed in those before.
  void pass_over(protocol::Member member, TimePoint from);
  // Its link, or failure detection's word. A member that was never met may still be starting.
  void link_down(protocol::Member member, TimePoint now);

  bool is_met(protocol::Member member) const { return peers_[member].met; }
  TimePoint heard_at(protocol::Member member) const { return peers_[member].heard_at; }
  // Since when, where it is not.
  std::optional<TimePoint> silent_since(protocol::Member member) const {
    return peers_[member].silent_since;
  }
  bool is_passed_over(protocol::Member member, TimePoint now) const {
    const auto& from = peers_[member].passed_over_from;
    return from && now >= *from;
  }
  // Its link was not replaced in time.
  bool is_gone(protocol::Member member, TimePoint now) const;
  bool is_lost(protocol::Member member, TimePoint now) const;  // gone, silent or passed over
  // When it is, as far as is known.
  std::optional<TimePoint> lost_at(protocol::Member member) const;
  std::vector<protocol::Member> lost(TimePoint now) const;
  // Neither silent nor passed over, and their links are up.
  std::size_t heard_others() const;
  // When to give up what it was asked for at `since`: at `until`, or sooner if its link is lost or
  // it is passed over.
  TimePoint waits_until(protocol::Member member, TimePoint since, TimePoint until) const;

 private:
  struct Peer {
    bool met = false;                   // it was heard, or its link was up
    std::optional<TimePoint> asked_at;  // it owes an answer
    std::optional<TimePoint> silent_since;
    std::optional<TimePoint> down_since;
    std::optional<TimePoint> passed_over_from;
    TimePoint heard_at{};
  };
  protocol::Member self_;
  std::vector<Peer> peers_;
};

}  // namespace starling::collective
