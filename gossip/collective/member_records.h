// SPDX-License-Identifier: Apache-2.0
// What is remembered of members from one exchange to the next: for how long others waited for them
// in vain, and who gave no list or mean. Members are known by their names, since in groups they
// have another place in each exchange.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/base/seldom_line.h"
#include "core/protocol/peer_messages.h"
#include "gossip/progress/wait_budget.h"

namespace starling::collective {

class MemberRecords {
 public:
  struct Options {
    // So long a member may hold the others up; then for the share of the time in which that comes
    // back (WaitBudget).
    Duration budget = std::chrono::seconds(30);
    int forgiven = gossip::WaitBudget::kForgiven;
    // So many members at most are over it at a time, those who owe most.
    std::size_t over_max = SIZE_MAX;
  };

  explicit MemberRecords(const Options& options) : options_(options) {}

  // `by` says that it waited so long for `of` in vain: either may be the cause. Returns how much of
  // it counts, since what a pair owes is bounded.
  Duration waited(const std::string& by, const std::string& of, Duration wait, TimePoint now);
  // The same, of a member that did not come in time. Others may have held it up: once it comes,
  // half of these waits is forgiven.
  void was_late(const std::string& by, const std::string& of, Duration wait, TimePoint now);
  void came(const std::string& by, const std::string& of, TimePoint now);
  // What all waits come to that it had a part in.
  Duration owed(const std::string& member, TimePoint now) const;
  // Whether any wait is remembered.
  bool has_waits(TimePoint now) const;
  // Who has used up its budget. The one that owes most is taken out with all waits that it had a
  // part in, until nobody owes as much: who held up many is the cause, and not each of these. Of
  // the two of one wait the one that was waited for is taken. Never `self`.
  std::set<std::string> over_budget(const std::string& self, TimePoint now) const;

  // `by` complains of wrong numbers of `of`: one of the two lies. Counted like a wait of so long.
  void complained(const std::string& by, const std::string& of, Duration wait, TimePoint now);
  // Whether it has a part in complaints with several others, as who sends wrong numbers, or says so
  // of others: one pair of members says nothing of either, however often they complain.
  bool sends_wrong(const std::string& member, TimePoint now) const;
  // Of a pair of which nothing else is known: whose turn it is to be left out of this exchange.
  const std::string& take_turns(const std::string& a, const std::string& b,
                                protocol::Exchange exchange);
  // Who has used up its budget by complaints with several others, or with `self`.
  std::set<std::string> over_complaints(const std::string& self, TimePoint now) const;

  // Whether a member gave the last mean that it was asked for: others are asked first.
  void gave(const std::string& member) { no_donors_.erase(member); }
  void gave_nothing(const std::string& member) { no_donors_.insert(member); }
  bool gives(const std::string& member) const { return !no_donors_.contains(member); }

  // Whether a member, as the gatherer, gave a list when it was registered with last: it may be
  // heard and not hear us, and another one is registered with.
  void listed(const std::string& gatherer) { no_gatherers_.erase(gatherer); }
  void listed_nothing(const std::string& gatherer) { no_gatherers_.insert(gatherer); }
  bool lists(const std::string& gatherer) const { return !no_gatherers_.contains(gatherer); }

  // Whether to log a line about this now: one that a liar could cause in each exchange.
  bool is_line_due(const std::string& topic, TimePoint now) { return lines_[topic].is_due(now); }

 private:
  using Pair = std::pair<std::string, std::string>;  // by, of
  using Budgets = std::map<Pair, gossip::WaitBudget>;
  struct Complaints {
    Duration owed{};
    Duration largest{};  // with one other
    Duration with_self{};
    bool are_with_several() const;
  };
  // By member, of all but these.
  std::map<std::string, Complaints> sum_complaints(const std::set<std::string>& but,
                                                   const std::string& self, TimePoint now) const;
  // How much of it counts.
  Duration spend(Budgets& budgets, Pair pair, Duration wait, TimePoint now) const;

  Options options_;
  Budgets waits_;
  Budgets late_;  // of these, since they came last
  Budgets complaints_;
  struct Turn {
    protocol::Exchange exchange = 0;
    bool is_first = false;  // of the pair
  };
  std::map<Pair, Turn> turns_;  // of each pair, the member left out last
  std::set<std::string> no_donors_;
  std::set<std::string> no_gatherers_;
  std::map<std::string, SeldomLine> lines_;
};

}  // namespace starling::collective
