// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/roster_in_force.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace starling::gossip {
namespace {

// Clocks differ so much.
constexpr auto kClockSlack = std::chrono::minutes(5);

}  // namespace

Result<void> RosterInForce::check(const identity::SignedRoster& roster, peer::Source source,
                                  const RosterClock& clock) const {
  if (!roster_) return {};
  // One that is over has no place beside one that holds: else a lost key of long ago, whose
  // certificate was good when the roster says that it was signed, could end any network.
  if (source == peer::Source::kOther && !is_expired(clock) &&
      roster.roster().expired(time_of_check(clock))) {
    return rejected("roster-old", "the roster is over");
  }
  return roster.may_follow(*roster_);
}

void RosterInForce::take(std::shared_ptr<const identity::SignedRoster> roster, peer::Source source,
                         const RosterClock& clock) {
  roster_ = std::move(roster);
  taken_at_ = clock.now;
  const identity::Roster& taken = roster_->roster();
  clock_is_wrong_ = source == peer::Source::kIssuer &&
                    (clock.wall < taken.issued - kClockSlack || taken.expired(clock.wall));
}

WallTime RosterInForce::time_of_check(const RosterClock& clock) const {
  const auto held_for = std::chrono::floor<std::chrono::milliseconds>(clock.now - taken_at_);
  const WallTime known = std::max(clock.authenticated, roster_->roster().issued + held_for);
  return clock_is_wrong_ ? known : std::max(known, clock.wall);
}

std::optional<Duration> RosterInForce::run_age(const RosterClock& clock) const {
  const auto age = roster_->roster().run_age();
  if (!age) return std::nullopt;
  return *age + (time_of_check(clock) - roster_->roster().issued);
}

std::string RosterInForce::expiry() const {
  return fmt::format("the roster expired at {}", format_rfc3339(roster_->roster().expires));
}

}  // namespace starling::gossip
