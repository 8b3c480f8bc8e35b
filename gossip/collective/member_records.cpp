// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/member_records.h"

#include <algorithm>

namespace starling::collective {
namespace {

// However long it was, as where this process itself was stopped: a member is let back in then.
constexpr int kBudgetsMax = 2;
// Complaints with others than one count as those with several if they come to this part of those
// with the one.
constexpr int kKnownPart = 4;

}  // namespace

Duration MemberRecords::spend(Budgets& budgets, Pair pair, Duration wait, TimePoint now) const {
  std::erase_if(budgets, [now](const auto& entry) { return entry.second.owed(now) == Duration{}; });
  auto& budget = budgets.try_emplace(std::move(pair), options_.forgiven).first->second;
  const Duration counted = std::min(wait, budget.left(kBudgetsMax * options_.budget, now));
  budget.spend(counted, now);
  return counted;
}

Duration MemberRecords::waited(const std::string& by, const std::string& of, Duration wait,
                               TimePoint now) {
  return spend(waits_, {by, of}, wait, now);
}

void MemberRecords::was_late(const std::string& by, const std::string& of, Duration wait,
                             TimePoint now) {
  const Duration counted = waited(by, of, wait, now);
  late_.try_emplace({by, of}, options_.forgiven).first->second.spend(counted, now);
}

void MemberRecords::came(const std::string& by, const std::string& of, TimePoint now) {
  const auto late = late_.extract({by, of});
  if (late.empty()) return;
  const auto budget = waits_.find(late.key());
  if (budget == waits_.end()) return;
  budget->second.spend(-std::min(late.mapped().owed(now) / 2, budget->second.owed(now)), now);
}

Duration MemberRecords::owed(const std::string& member, TimePoint now) const {
  Duration owed{};
  for (const auto& [pair, budget] : waits_) {
    if (pair.first == member || pair.second == member) owed += budget.owed(now);
  }
  return owed;
}

bool MemberRecords::has_waits(TimePoint now) const {
  return std::ranges::any_of(
      waits_, [now](const auto& entry) { return entry.second.owed(now) > Duration::zero(); });
}

std::set<std::string> MemberRecords::over_budget(const std::string& self, TimePoint now) const {
  std::set<std::string> over;
  while (over.size() < options_.over_max) {
    // What it owes, and what of that it was waited for.
    std::map<std::string, std::pair<Duration, Duration>> owed;
    for (const auto& [pair, budget] : waits_) {
      if (over.contains(pair.first) || over.contains(pair.second)) continue;
      const Duration its = budget.owed(now);
      owed[pair.first].first += its;
      owed[pair.second].first += its;
      owed[pair.second].second += its;
    }
    owed.erase(self);
    const auto most =
        std::ranges::max_element(owed, {}, [](const auto& entry) { return entry.second; });
    if (most == owed.end() || most->second.first < options_.budget) break;
    over.insert(most->first);
  }
  return over;
}

void MemberRecords::complained(const std::string& by, const std::string& of, Duration wait,
                               TimePoint now) {
  (void)spend(complaints_, {by, of}, wait, now);
}

bool MemberRecords::Complaints::are_with_several() const {
  return kKnownPart * std::max(owed - largest, with_self) >= largest && owed > Duration{};
}

std::map<std::string, MemberRecords::Complaints> MemberRecords::sum_complaints(
    const std::set<std::string>& but, const std::string& self, TimePoint now) const {
  std::map<Pair, Duration> pairs;  // whoever of the two complains
  for (const auto& [pair, budget] : complaints_) {
    if (but.contains(pair.first) || but.contains(pair.second)) continue;
    pairs[std::minmax(pair.first, pair.second)] += budget.owed(now);
  }
  std::map<std::string, Complaints> sums;
  for (const auto& [pair, owed] : pairs) {
    for (const auto& [member, other] : {pair, Pair(pair.second, pair.first)}) {
      Complaints& its = sums[member];
      its.owed += owed;
      its.largest = std::max(its.largest, owed);
      if (other == self) its.with_self += owed;
    }
  }
  return sums;
}

bool MemberRecords::sends_wrong(const std::string& member, TimePoint now) const {
  const auto sums = sum_complaints({}, {}, now);
  const auto its = sums.find(member);
  return its != sums.end() && its->second.are_with_several();
}

const std::string& MemberRecords::take_turns(const std::string& a, const std::string& b,
                                             protocol::Exchange exchange) {
  const auto [found, is_new] = turns_.try_emplace(std::minmax(a, b), Turn{exchange, true});
  Turn& turn = found->second;
  if (!is_new && turn.exchange != exchange) turn = {exchange, !turn.is_first};
  return turn.is_first ? std::min(a, b) : std::max(a, b);
}

std::set<std::string> MemberRecords::over_complaints(const std::string& self, TimePoint now) const {
  std::set<std::string> over;
  while (true) {
    auto sums = sum_complaints(over, self, now);
    std::erase_if(sums, [&](const auto& entry) {
      const auto& [member, its] = entry;
      return member == self || !its.are_with_several() || its.owed < options_.budget;
    });
    const auto most = std::ranges::max_element(
        sums, {}, [](const auto& entry) { return entry.second.owed - entry.second.largest; });
    if (most == sums.end()) return over;
    over.insert(most->first);
  }
}

}  // namespace starling::collective
