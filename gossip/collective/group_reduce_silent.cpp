// SPDX-License-Identifier: Apache-2.0
// A silent member is noticed by all others within one wait: a member that waits for long asks the
// members of its next groups, too, whether they are there. Otherwise each would notice it only when
// both are drawn into one group, and the waits would add up.
#include <algorithm>
#include <utility>

#include "gossip/collective/group_reduce_machine.h"

namespace starling::collective {

// Each time that those of the exchange at hand are asked.
void GroupReduceMachine::ask_next_groups() {
  const Group* const group = busy_ ? find(at_.exchange) : nullptr;
  const auto asked_at = group != nullptr ? group->machine.others_asked_at() : std::nullopt;
  if (!asked_at || next_asked_at_ || (next_judged_at_ && *asked_at < *next_judged_at_)) return;
  next_asked_at_ = now_;
  for (Exchange exchange = at_.exchange + 1; exchange <= at_.exchange + kAhead; ++exchange) {
    for (const Member member : own_group(exchange)) {
      Peer& peer = peers_[member];
      if (member == self_ || group->place_of(member) || peer.is_missing() || !peer.met ||
          peer.down_since || std::exchange(peer.is_asked, true)) {
        continue;
      }
      send(member, at_.exchange, 0, reduce::AskProgress{});
    }
  }
}

std::optional<TimePoint> GroupReduceMachine::judges_next_at() const {
  return next_asked_at_ ? std::optional(*next_asked_at_ + piece_wait() / 2) : std::nullopt;
}

void GroupReduceMachine::judge_next_groups() {
  const auto due = judges_next_at();
  if (!due || now_ < *due) return;
  for (Member member = 0; member < peers_.size(); ++member) {
    if (!std::exchange(peers_[member].is_asked, false)) continue;
    call_silent(peers_[member]);
    // We may have come to an exchange with it meanwhile.
    const Group* const group = busy_ ? find(at_.exchange) : nullptr;
    const auto place = group != nullptr ? group->place_of(member) : std::nullopt;
    if (place) pass_over(at_.exchange, *place, now_);
  }
  forget_questions();
}

// Until it comes near: that its link carries again tells nothing of where it is.
void GroupReduceMachine::call_silent(Peer& peer) {
  if (peer.is_missing()) return;
  peer.missed = kMissedMax;
  peer.came_near = false;
}

void GroupReduceMachine::forget_questions() {
  for (Peer& peer : peers_) peer.is_asked = false;
  next_asked_at_.reset();
  next_judged_at_ = now_;
}

}  // namespace starling::collective
