// SPDX-License-Identifier: Apache-2.0
// How exchanges of a group begin, and the wait for the members at the start of a network.
#include <algorithm>
#include <utility>

#include "gossip/collective/group_reduce_machine.h"

namespace starling::collective {

bool GroupReduceMachine::has_met_all() const {
  for (Member member = 0; member < peers_.size(); ++member) {
    if (member != self_ && !peers_[member].met && !peers_[member].is_missing()) return false;
  }
  return true;
}

// Two members must say that the network runs already, or one where only the lesser part of the
// members would be left behind.
void GroupReduceMachine::hear_that_it_runs(Member from, Exchange exchange) {
  if (!is_starting_ || exchange <= at_.exchange) return;
  running_.insert(from);
  const auto met = static_cast<std::size_t>(std::ranges::count_if(peers_, &Peer::met));
  if (running_.size() >= 2 || 2 * (met + 1) > peers_.size()) is_starting_ = false;
}

void GroupReduceMachine::begin_now() {
  const Begin begin = *std::exchange(held_, std::nullopt);
  const Exchange exchange = begin.at.exchange;
  is_starting_ = false;
  for (Member member = 0; member < peers_.size(); ++member) {
    if (!peers_[member].met && is_down(peers_[member])) reach(member, false);
  }
  const bool took_model_of_quorum = is_minority() && begin.at.backed > at_.backed;
  if (took_model_of_quorum) is_alone_ = false;
  if (took_model_of_quorum && quorum_.held()) {
    quorum_.rejoin({}, now_);
    for (Peer& peer : peers_) peer.missed = 0;  // we have come to them
  }
  const Exchange former = std::exchange(at_, begin.at).exchange;
  forget_groups(former);
  claims_.begin(at_, now_);
  if (std::exchange(copied_, false)) {
    claims_.pace().took(exchange, now_);
    away_until_ = exchange + ahead_max();
    tell_put_off();
    // A mean that was held apart is of no exchange of a quorum, also of one with the same number.
    if (exchange == former && find(exchange) != nullptr) groups_.at(exchange).machine.forget_mean();
  }
  busy_ = true;
  if (!is_minority()) outranked_by_.reset();
  if (outranked_by_) return copy_model_of_quorum();
  // Before the exchange begins, since one in which nobody is waited for ends at once.
  look_ahead();
  if (!busy_) return;
  // It may be there already, as things were then.
  Group& group = open(exchange);
  const Group* const ended = ended_last_ ? find(*ended_last_) : nullptr;
  if (ended != nullptr) group.machine.learn_from(ended->machine);
  for (Member place = 0; place < group.members.size(); ++place) {
    if (peers_[group.members[place]].is_missing()) pass_over(exchange, place, now_);
  }
  give(exchange, Begin{.at = of_machine(exchange),
                       .input = begin.input,
                       .distance_max = begin.distance_max,
                       .was_away = exchange < away_until_ || has_put_off(exchange)});
  for (Member place = 0; busy_ && place < group.members.size(); ++place) {
    if (claims_.has(group.members[place])) pass_over_further(place);
  }
}

// All that are not around the exchange that is about to begin, and those that were passed over for
// the model of others: their members hear that we do not come, and so does who asks later. Whoever
// goes back, to the model of a quorum, knows nothing of what follows there.
void GroupReduceMachine::forget_groups(Exchange former) {
  std::erase_if(drawn_, [&](const auto& entry) {
    return entry.first < at_.exchange || entry.first > at_.exchange + kAhead;
  });
  const bool goes_back = at_.exchange < former;
  const Exchange last = at_.exchange + kAhead;
  std::erase_if(groups_, [&](const auto& entry) {
    const auto& [of, group] = entry;
    if (goes_back && of >= at_.exchange) return true;
    if (of < at_.exchange && !group.machine.has_ended()) {
      for (const Member member : group.members) {
        if (member != self_) tell_where_we_are(member);
      }
      return true;
    }
    return (of + kKept < at_.exchange && of != ended_last_) || of > last;
  });
}

// Who registered for it while we were too far behind does so again only if it is asked.
bool GroupReduceMachine::has_put_off(Exchange exchange) const {
  return std::ranges::any_of(put_off_,
                             [exchange](const auto& of) { return of.second == exchange; });
}

// Who waits for us in an exchange that the copied model has passed.
void GroupReduceMachine::tell_put_off() {
  for (const auto& [member, exchange] : std::exchange(put_off_, {})) {
    if (exchange < at_.exchange) tell_where_we_are(member);
  }
}

}  // namespace starling::collective
