// SPDX-License-Identifier: Apache-2.0
// Members that are elsewhere: further, or on the other side of a partition. Whether they are waited
// for, and when a model of theirs is copied.
#include <algorithm>
#include <utility>

#include "gossip/collective/group_reduce_machine.h"

namespace starling::collective {
namespace {

// A minority that got no model tries again after so many times the longest silence of a gatherer.
constexpr int kReturnWaits = 4;
// How long a member that says that it is further is waited for; halved each time that we did not
// follow it.
constexpr Duration kFollows = std::chrono::milliseconds(200);
constexpr unsigned kHalvedMax = 16;

}  // namespace

// That member does not come to our exchange any more; whether it is to be followed is another
// question.
void GroupReduceMachine::hear_of_further(Member from, Progress theirs) {
  if (theirs.exchange <= at_.exchange) return;
  if (const auto place = open(at_.exchange).place_of(from)) pass_over_further(*place);
  if (theirs.exchange <= at_.exchange + kKept) return;
  claims_.hear(from, theirs, {from}, has_left_us(from, theirs.exchange));
  look_ahead();
}

// Groups that chance does not draw with ours are ahead without a fault, and wait for us once they
// are drawn with us.
bool GroupReduceMachine::has_left_us(Member member, Exchange theirs) {
  if (theirs > at_.exchange + kAhead) return true;
  for (Exchange exchange = at_.exchange; exchange < theirs; ++exchange) {
    if (std::ranges::binary_search(own_group(exchange), member)) return true;
  }
  return false;
}

// Others may say the same, and then we follow. Else each exchange would end at once without those
// that we are about to follow; or a liar would hold up each one.
void GroupReduceMachine::pass_over_further(Member place) {
  const Group& group = groups_.at(at_.exchange);
  const unsigned halved = std::min(peers_[group.members[place]].not_followed, kHalvedMax);
  pass_over(at_.exchange, place, now_ + kFollows / (1U << halved));
}

void GroupReduceMachine::look_ahead() {
  if (!busy_) return;
  auto further = claims_.follow(at_, heard_others(), now_);
  if (further) return catch_up(std::move(*further));
  for (const Member m : claims_.to_ask(now_)) send(m, at_.exchange, 0, reduce::AskProgress{});
}

// Of all who are as far, whichever group they are in.
void GroupReduceMachine::catch_up(AheadClaims::Further further) {
  further.donors = claims_.tellers(further.next);
  if (!std::exchange(is_left_out_, true)) {
    actions_.emplace_back(
        Say{LogLevel::kWarning, claims_.left_behind(further, at_.exchange, names_)});
  }
  leave_exchange();
  actions_.emplace_back(CatchUp{further.next, std::move(further.donors)});
}

// For a model of others.
void GroupReduceMachine::leave_exchange() {
  busy_ = false;
  const auto found = groups_.find(at_.exchange);
  if (found == groups_.end() || !found->second.machine.busy()) return;
  found->second.machine.set_aside(now_);
  remember_silent(found->second);
}

std::size_t GroupReduceMachine::heard_others() const {
  const auto heard = std::ranges::count_if(
      peers_, [](const Peer& peer) { return !peer.is_missing() && !peer.down_since; });
  return static_cast<std::size_t>(heard) - 1;  // without ourselves
}

// What a minority learned apart is not mixed with the models of a quorum.
bool GroupReduceMachine::one_gives_way(Member from, Progress theirs, bool asks) {
  if (gives_way(theirs)) {
    if (asks) tell_where_we_are(from);
    return true;
  }
  if (!is_outranked_by(theirs)) return false;
  outranked_by_ = {from, theirs};
  if (busy_) copy_model_of_quorum();
  return true;
}

// Whether they are a minority while we have a quorum, and are no further. They may be: members that
// were all started again have a quorum, and are behind where this minority last had one.
bool GroupReduceMachine::gives_way(Progress theirs) const {
  return theirs.backed < theirs.exchange && theirs.backed <= at_.backed && !is_minority();
}

bool GroupReduceMachine::is_outranked_by(Progress theirs) const {
  return is_minority() && quorum_.held() && theirs.backed == theirs.exchange &&
         theirs.backed > at_.backed && now_ >= returns_again_at_;
}

void GroupReduceMachine::copy_model_of_quorum() {
  const auto [from, theirs] = *std::exchange(outranked_by_, std::nullopt);
  returns_again_at_ = now_ + kReturnWaits * options_.exchange.answer;
  leave_exchange();
  // Other members may not belong to that quorum.
  actions_.emplace_back(CatchUp{.next = theirs, .donors = {from}});
}

}  // namespace starling::collective
