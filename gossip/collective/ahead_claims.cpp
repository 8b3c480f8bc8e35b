// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/ahead_claims.h"

#include <algorithm>

namespace starling::collective {

using protocol::Member;
using protocol::Progress;

namespace {

constexpr unsigned kDoubtDoublingsMax = 6;

}  // namespace

// The others have not been asked about a claim of who made none before.
void AheadClaims::hear(Member from, Further further) {
  if (!claims_[from]) answered_at_.reset();
  claims_[from] = Claim{std::move(further), claims_[from] && claims_[from]->doubted};
}

void AheadClaims::begin(Progress at) {
  for (auto& claim : claims_) {
    if (claim && claim->further.next <= at) claim.reset();
  }
  if (std::ranges::none_of(claims_, [](const auto& claim) { return claim.has_value(); })) {
    answered_at_.reset();
  }
  ignored_until_ = {};
}

void AheadClaims::came_to_nothing(Member teller, TimePoint now, Duration wait) {
  Record& record = records_[teller];
  record.doubted_until =
      now + wait * (1U << std::min(record.came_to_nothing++, kDoubtDoublingsMax));
  claims_[teller].reset();
  ignored_until_ = now + wait;
}

// As far as the i furthest say, they are i witnesses.
std::optional<AheadClaims::Further> AheadClaims::believed(std::size_t others, TimePoint now) const {
  if (now < ignored_until_) return std::nullopt;
  std::vector<const Further*> claims;
  for (const auto& claim : claims_) {
    if (claim) claims.push_back(&claim->further);
  }
  std::ranges::stable_sort(claims,
                           [](const Further* a, const Further* b) { return a->next > b->next; });
  std::size_t trusted = 0;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const bool are_most = 2 * (i + 1) > claims_.size();
    const bool is_witness = now >= records_[claims[i]->teller].doubted_until;
    if (is_witness) ++trusted;
    const bool is_confirmed = is_witness && is_believed(claims[i]->next, trusted, others, now);
    if (are_most || is_confirmed) return *claims[i];
  }
  return std::nullopt;
}

bool AheadClaims::asks_others(TimePoint now, Duration wait) {
  looks_at_.reset();
  bool any_new = false;
  for (auto& claim : claims_) {
    if (!claim) continue;
    looks_at_ = now + wait;
    if (is_answered(now)) claim->doubted = true;
    any_new = any_new || !claim->doubted;
  }
  if (!any_new || answered_at_) return false;
  answered_at_ = now + wait;
  return true;
}

bool AheadClaims::is_believed(Progress next, std::size_t witnesses, std::size_t others,
                              TimePoint now) const {
  if (witnesses >= std::min(others, gossip::AheadBound::kWitnesses)) {
    return is_explainable(next, now);
  }
  const auto most = pace_.alone(now);
  if (most) return next.exchange <= *most;
  // A new member has nothing to hold against it but what the others say.
  return is_answered(now);
}

bool AheadClaims::is_explainable(Progress at, TimePoint now) const {
  const auto most = pace_.confirmed(now);
  return !most || at.exchange <= *most;
}

}  // namespace starling::collective
