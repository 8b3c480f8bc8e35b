// SPDX-License-Identifier: Apache-2.0
// The roster that a peer goes by, and whether it is still good: which one takes the place of which,
// and by whose clock it expires.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/identity/roster.h"
#include "gossip/peer/peer_events.h"

namespace starling::gossip {

// What is known of the time when a roster is checked.
struct RosterClock {
  TimePoint now{};           // of this process
  WallTime wall{};           // as this device's clock says, which may be wrong
  WallTime authenticated{};  // the latest that a coordinator told; never later than the truth
};

class RosterInForce {
 public:
  // Whether this one takes the place of what is held: as SignedRoster::may_follow, and "roster-old"
  // too where it is over and that one holds.
  [[nodiscard]] Result<void> check(const identity::SignedRoster& roster, peer::Source source,
                                   const RosterClock& clock) const;
  void take(std::shared_ptr<const identity::SignedRoster> roster, peer::Source source,
            const RosterClock& clock);

  explicit operator bool() const { return roster_ != nullptr; }
  const identity::Roster& operator*() const { return roster_->roster(); }
  const identity::Roster* operator->() const { return &roster_->roster(); }
  const identity::Roster* get() const { return roster_ ? &roster_->roster() : nullptr; }
  const std::shared_ptr<const identity::SignedRoster>& whole() const { return roster_; }
  // Requires the following two: there is one.
  bool is_expired(const RosterClock& clock) const {
    return roster_->roster().expired(time_of_check(clock));
  }
  std::string expiry() const;  // a sentence without its end
  // How long its run has been going on, as Roster::run_age, by the time that it is checked by.
  std::optional<Duration> run_age(const RosterClock& clock) const;

 private:
  WallTime time_of_check(const RosterClock& clock) const;

  std::shared_ptr<const identity::SignedRoster> roster_;
  TimePoint taken_at_{};
  bool clock_is_wrong_ = false;  // it was not current by the clock when its issuer sent it
};

}  // namespace starling::gossip
