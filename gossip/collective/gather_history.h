// SPDX-License-Identifier: Apache-2.0
// What a gatherer remembers from one attempt to the next: the lists that it has sent, and which
// members it leaves out.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "gossip/collective/reducer.h"

namespace starling::collective {

class GatherHistory {
 public:
  // Lists of one exchange, after which those who may be to blame are left out.
  static constexpr unsigned kListsMax = 2;

  // A list was sent. `sources`: whom its members wait for: those who reduce, or hold what stands.
  void sent(Progress at, Attempt attempt, Members sources) {
    if (lists_.at != at) lists_ = {.at = at};
    lists_.attempt = attempt;
    ++lists_.count;
    lists_.sources = std::move(sources);
  }
  bool has_many_lists(Progress at) const { return lists_.at == at && lists_.count >= kListsMax; }
  Attempt last_attempt(Progress at) const { return lists_.at == at ? lists_.attempt : 0; }
  bool was_sent(Progress at, Attempt attempt) const {  // this one, or a later one
    return std::pair(lists_.at, lists_.attempt) >= std::pair(at, attempt);
  }
  // Whom the members of the last list waited for; empty: there was none.
  Members sources(Progress at) const { return lists_.at == at ? lists_.sources : Members{}; }

  // Of the last list: others were done, and these did not say so.
  void set_overdue(std::set<Member> members) { lists_.overdue = std::move(members); }
  std::set<Member> take_overdue(Progress at) {
    return lists_.at == at ? std::exchange(lists_.overdue, {}) : std::set<Member>{};
  }

  // Its registrations count no more in the exchange of the last list. Whether they did.
  bool exclude(Member member) { return lists_.excluded.insert(member).second; }
  // They have held up exchanges for too long: they are not waited for in this one, and end it with
  // the mean of the others.
  void bar(Progress at, std::set<Member> members) { barred_ = {at, std::move(members)}; }
  bool has_barred(Progress at) const { return barred_.first == at; }  // any or none
  bool is_barred(Member member) const { return barred_.second.contains(member); }
  bool is_left_out(Progress at, Member member) const {
    return (has_barred(at) && is_barred(member)) ||
           (lists_.at == at && lists_.excluded.contains(member));
  }

 private:
  struct Lists {  // of the last exchange that had any
    Progress at;
    Attempt attempt = 0;  // of the last one; no attempt has two
    unsigned count = 0;
    Members sources = {};
    std::set<Member> overdue = {};
    std::set<Member> excluded = {};
  };
  Lists lists_;
  std::pair<Progress, std::set<Member>> barred_;
};

}  // namespace starling::collective
