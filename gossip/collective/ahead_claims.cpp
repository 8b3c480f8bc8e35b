// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/ahead_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/list_some.h"

namespace starling::collective {

using protocol::Member;
using protocol::Progress;

// Of one that it made before the others know, also where exchanges end sooner than they answer.
void AheadClaims::hear(Member from, Progress next, std::vector<Member> donors, bool has_left) {
  const auto answered_at = claims_[from] ? claims_[from]->answered_at : std::nullopt;
  claims_[from] = Claim{{next, std::move(donors), from}, has_left, answered_at};
}

std::optional<AheadClaims::Further> AheadClaims::follow(Progress ours, std::size_t others,
                                                        TimePoint now) {
  auto furthest = believed(ours, others, now);
  if (!furthest) return std::nullopt;
  followed_ = std::move(furthest);
  return followed_->further;
}

void AheadClaims::copied(TimePoint now) {
  const auto followed = std::exchange(followed_, std::nullopt);
  if (!followed) return;
  for (const Member witness : followed->witnesses) doubted_.led_on(witness, now);
}

void AheadClaims::begin(Progress at, TimePoint now) {
  for (auto& claim : claims_) {
    if (claim && claim->further.next <= at) claim.reset();
  }
  ignored_until_ = {};
  const auto in_vain = std::exchange(followed_, std::nullopt);
  if (!in_vain) return;
  for (const Member witness : in_vain->witnesses) doubted_.came_to_nothing(witness, now);
  claims_[in_vain->further.teller].reset();
  ignored_until_ = now + wait_;
}

// As far as the i furthest say, they are i witnesses.
std::optional<AheadClaims::Believed> AheadClaims::believed(Progress ours, std::size_t others,
                                                           TimePoint now) {
  if (now < ignored_until_) return std::nullopt;
  std::vector<const Claim*> claims;
  for (const auto& claim : claims_) {
    if (claim && claim->further.next > ours) claims.push_back(&*claim);
  }
  std::ranges::stable_sort(
      claims, [](const Claim* a, const Claim* b) { return a->further.next > b->further.next; });
  std::vector<Member> witnesses;
  bool has_any_left = false;
  bool has_witness_left = false;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const Further& further = claims[i]->further;
    has_any_left = has_any_left || claims[i]->has_left;
    const std::size_t twice = 2 * (i + 1);
    if (twice > claims_.size() && has_any_left) return Believed{further, {}};
    if (i > 0 && twice == claims_.size() && has_any_left && now >= half_believed_from_) {
      half_believed_from_ = now + wait_;
      return Believed{further, {}};
    }
    if (others > 1 && doubted_.contains(further.teller, now)) continue;
    witnesses.push_back(further.teller);
    has_witness_left = has_witness_left || claims[i]->has_left;
    if (has_witness_left && is_believed(*claims[i], witnesses.size(), others, now)) {
      return Believed{further, std::move(witnesses)};
    }
  }
  return std::nullopt;
}

std::vector<Member> AheadClaims::tellers(Progress next) const {
  std::vector<Member> members;
  for (Member m = 0; m < claims_.size(); ++m) {
    if (claims_[m] && claims_[m]->further.next >= next) members.push_back(m);
  }
  return members;
}

std::vector<Member> AheadClaims::to_ask(TimePoint now) {
  looks_at_.reset();
  const bool may_ask = now >= answered_at_;
  bool is_new = false;
  std::vector<Member> others;
  for (Member m = 0; m < claims_.size(); ++m) {
    auto& claim = claims_[m];
    if (!claim && m != self_) others.push_back(m);
    if (!claim) continue;
    looks_at_ = now + wait_;
    if (claim->answered_at || !may_ask) continue;
    claim->answered_at = answered_at_ = now + wait_;
    is_new = true;
  }
  return is_new ? others : std::vector<Member>{};
}

bool AheadClaims::is_believed(const Claim& claim, std::size_t witnesses, std::size_t others,
                              TimePoint now) const {
  const Progress next = claim.further.next;
  if (witnesses >= std::min(others, gossip::AheadBound::kWitnesses)) {
    return is_explainable(next, now);
  }
  const auto most = pace_.alone(now);
  if (most) return next.exchange <= *most;
  // A new member has nothing to hold against it but what the others say.
  return claim.is_answered(now);
}

bool AheadClaims::is_explainable(Progress at, TimePoint now) const {
  const auto most = pace_.confirmed(now);
  return !most || at.exchange <= *most;
}

std::string AheadClaims::left_behind(Further further, protocol::Exchange ours,
                                     const std::vector<std::string>& names) const {
  constexpr std::size_t kNamedMax = 8;
  std::erase(further.donors, self_);
  return fmt::format(
      "{} says that the others are at exchange {}; we are at {} and have to copy a model of {}",
      names[further.teller], further.next.exchange, ours,
      list_some(further.donors, kNamedMax, [&](Member m) { return names[m]; }));
}

}  // namespace starling::collective
