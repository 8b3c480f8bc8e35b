// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/registrations.h"

#include <algorithm>
#include <tuple>

namespace starling::collective {

bool Registrations::is_lost_to_any(Member member) const {
  return std::ranges::any_of(all_, [member](const auto& entry) {
    return std::ranges::binary_search(entry.second.lost, member);
  });
}

bool Registrations::may_hear(Member by, Member other) const {
  const Registration& its = all_.at(by);
  return by != self_ && !its.held && !std::ranges::binary_search(its.lost, other);
}

Members Registrations::members() const {
  Members members;
  for (const auto& [member, its] : all_) members.push_back(member);
  return members;
}

Members Registrations::missing() const {
  Members members;
  for (Member m = 0; m < rule_.members; ++m) {
    if (m != self_ && !contains(m)) members.push_back(m);
  }
  return members;
}

Members Registrations::holders(const Sha256Digest& sha256) const {
  Members members;
  for (const auto& [member, its] : all_) {
    if (its.held && its.held->sha256 == sha256) members.push_back(member);
  }
  return members;
}

// Of the means that may count as backed the one of the highest attempt; of the weak ones, where
// there is no other and those who are here back none. Of different means of one attempt none can
// have been committed: our own, or that of most.
const NamedMean* Registrations::standing() const {
  const bool is_backed = backs(members());
  const auto rank = [](const NamedMean& mean) { return std::pair(!mean.weak, mean.attempt); };
  const auto followers = [this](const NamedMean& mean) {
    const Members held_by = holders(mean.sha256);
    return std::tuple(std::ranges::binary_search(held_by, self_), held_by.size(), mean.sha256);
  };
  const auto is_less = [&](const NamedMean& a, const NamedMean& b) {
    if (rank(a) != rank(b) || a.sha256 == b.sha256) return rank(a) < rank(b);
    return followers(a) < followers(b);
  };
  const NamedMean* standing = nullptr;
  for (const auto& [member, its] : all_) {
    if (!its.held || (is_backed && its.held->weak)) continue;
    if (standing == nullptr || is_less(*standing, *its.held)) standing = &*its.held;
  }
  return standing;
}

// More than half of the members are among them and remember what they promised, and so does the
// gatherer; or nobody is left who could hold another.
bool Registrations::backs(const Members& list) const {
  const auto remember = static_cast<std::size_t>(
      std::ranges::count_if(list, [this](Member m) { return !all_.at(m).fresh; }));
  return (!started_again_ && rule_.is_quorum(remember)) || list.size() == rule_.members;
}

std::optional<Member> Registrations::better_gatherer() const {
  if (!started_again_ || backs(members())) return std::nullopt;
  Members others = members();
  std::erase_if(others, [this](Member m) { return of(m).fresh; });
  if (others.empty() || !rule_.is_quorum(others.size())) return std::nullopt;
  return others.front();
}

std::map<Member, Members> Registrations::waited_in_vain(const Members& held_by) const {
  std::map<Member, Members> by;
  for (const auto& [member, its] : all_) {
    const auto& blame = its.blame;
    if (blame && !blame->wrong && std::ranges::binary_search(held_by, blame->member)) {
      by[blame->member].push_back(member);
    }
  }
  return by;
}

std::optional<std::pair<Member, Blame>> Registrations::find_cause(const Members& listed) const {
  const auto wrong = first_blame(listed, true);
  return wrong ? wrong : first_blame(listed, false);
}

std::optional<std::pair<Member, Blame>> Registrations::first_blame(const Members& listed,
                                                                   bool wrong) const {
  std::optional<std::pair<Member, Blame>> first;
  for (const auto& [member, its] : all_) {
    const auto& blame = its.blame;
    if (!blame || blame->wrong != wrong) continue;
    if (!listed.empty() && !std::ranges::binary_search(listed, blame->member)) continue;
    if (!first || blame->pieces < first->second.pieces) first = {member, *blame};
  }
  return first;
}

// Who lacks most others goes first, the highest among equals.
Members Registrations::reducible(Members members, const Members& lost,
                                 const std::optional<std::pair<Member, Member>>& apart) const {
  const auto lacks = [&](Member a, Member b) {
    return apart == std::pair(a, b) ||
           std::ranges::binary_search(a == self_ ? lost : all_.at(a).lost, b);
  };
  while (true) {
    std::ptrdiff_t most = 0;
    Member worst = self_;
    for (const Member a : members) {
      const auto cuts = std::ranges::count_if(
          members, [&](Member b) { return a != b && (lacks(a, b) || lacks(b, a)); });
      if (cuts == 0 || a == self_ || cuts < most) continue;
      most = cuts;
      worst = a;
    }
    if (most == 0) return members;
    std::erase(members, worst);
  }
}

}  // namespace starling::collective
