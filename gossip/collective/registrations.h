// SPDX-License-Identifier: Apache-2.0
// The members that have registered with a gatherer, and what it has to make of what they hold: the
// rules of Paxos for the mean that stands, and who can reduce together where none does.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "core/base/digest.h"
#include "gossip/collective/reducer.h"

namespace starling::collective {

using protocol::Blame;
using protocol::NamedMean;
using Registration = reduce::Register;

// How many of the members are a majority.
struct MajorityRule {
  std::size_t members = 1;
  bool any = false;  // AllReduceOptions::any_mean

  // Of two members neither is a majority, and each alone is enough.
  bool is_quorum(std::size_t count) const { return any || members <= 2 || 2 * count > members; }
};

class Registrations {
 public:
  // Of the gatherer `self`, whose process was started again, or not.
  Registrations(const MajorityRule& rule, Member self, bool started_again)
      : rule_(rule), self_(self), started_again_(started_again) {}

  const MajorityRule& rule() const { return rule_; }
  Member self() const { return self_; }
  void add(Member member, Registration its) { all_[member] = std::move(its); }
  void remove(Member member) { all_.erase(member); }
  bool contains(Member member) const { return all_.contains(member); }
  const Registration& of(Member member) const { return all_.at(member); }
  const std::map<Member, Registration>& all() const { return all_; }
  std::size_t size() const { return all_.size(); }
  // More than half of all members are here, so that the others are late. Where any mean counts,
  // half of them are enough if the gatherer is one: in a group of two it can then find the other
  // late.
  bool are_most() const {
    const std::size_t twice = 2 * all_.size();
    return twice > rule_.members || (rule_.any && twice == rule_.members && contains(self_));
  }
  bool are_quorum() const { return rule_.is_quorum(all_.size()); }
  // Some say that it does not answer.
  bool is_lost_to_any(Member member) const;
  // Whether `by`, another than the gatherer, did not say that `other` is lost. Who holds a mean
  // says nothing of others, and does not count.
  bool may_hear(Member by, Member other) const;

  Members members() const;
  Members missing() const;  // who has not registered; never ourselves
  Members holders(const Sha256Digest& sha256) const;
  // The mean that stands, null: none.
  const NamedMean* standing() const;
  // Whether a mean that all of these hold counts as backed.
  bool backs(const Members& list) const;
  // A gatherer that was started again may have sent another list of its attempt: one that was not
  // is to gather instead, where enough of those are here.
  std::optional<Member> better_gatherer() const;
  // Who waited without an answer for which of these, that hold a mean.
  std::map<Member, Members> waited_in_vain(const Members& held_by) const;
  // Of all who waited in vain, the one that had got least; before these, who got wrong numbers.
  // Only members that were `listed` can have been waited for; empty: nobody was.
  std::optional<std::pair<Member, Blame>> find_cause(const Members& listed) const;
  // The same of those alone who waited, or who got wrong numbers.
  std::optional<std::pair<Member, Blame>> first_blame(const Members& listed, bool wrong) const;
  // Of `members` all but as few as make every two of the rest hear each other, ourselves in any
  // case. `lost`: to us. `apart`: are not to be together.
  Members reducible(Members members, const Members& lost,
                    const std::optional<std::pair<Member, Member>>& apart) const;

 private:
  MajorityRule rule_;
  Member self_;
  bool started_again_;
  std::map<Member, Registration> all_;
};

}  // namespace starling::collective
