// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/roster_in_force.h"

#include <gtest/gtest.h>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using peer::Source;
using starling::testing::PeerWorld;

class RostersInForce : public ::testing::Test {
 protected:
  identity::Roster made(std::uint64_t epoch, std::chrono::milliseconds issued = {},
                        std::chrono::milliseconds lifetime = 1h) const {
    identity::Roster roster = world.roster(epoch).roster();
    roster.issued = began + issued;
    roster.expires = roster.issued + lifetime;
    return roster;
  }
  // `wall`: since the beginning, as the device's clock says.
  RosterClock clock(Duration now, std::chrono::milliseconds wall) const {
    return {.now = TimePoint{} + now, .wall = began + wall, .authenticated = began};
  }
  void take(const identity::Roster& roster, Source source, const RosterClock& at) {
    force.take(std::make_shared<const identity::SignedRoster>(world.sign(roster)), source, at);
  }
  std::string code(const identity::Roster& roster, Source source, const RosterClock& at) const {
    const auto checked = force.check(world.sign(roster), source, at);
    return checked ? "" : std::string(checked.error().code());
  }

  PeerWorld world{testing::small_network("ring", 3), 1};
  const WallTime began = world.wall_now();
  RosterInForce force;
};

TEST_F(RostersInForce, TheFirstIsTakenWhateverItSays) {
  EXPECT_FALSE(force);
  EXPECT_EQ(force.get(), nullptr);
  EXPECT_EQ(code(made(1), Source::kOther, clock(0s, 5h)), "");
}

TEST_F(RostersInForce, OnlyALaterOneTakesThePlaceOfAnother) {
  take(made(3), Source::kIssuer, clock(0s, 0s));
  EXPECT_EQ(force->epoch, 3U);
  EXPECT_EQ(code(made(2, 10s), Source::kIssuer, clock(20s, 20s)), "roster-old");
  EXPECT_EQ(code(made(3), Source::kIssuer, clock(20s, 20s)), "roster-old");
  EXPECT_EQ(code(made(3, 10s), Source::kOther, clock(20s, 20s)), "");
  EXPECT_EQ(code(made(4, 10s), Source::kOther, clock(20s, 20s)), "");
}

TEST_F(RostersInForce, WithinAnEpochNothingButItsTimesMayChange) {
  take(made(3), Source::kIssuer, clock(0s, 0s));
  identity::Roster other = made(3, 10s);
  other.members.pop_back();
  EXPECT_EQ(code(other, Source::kIssuer, clock(20s, 20s)), "roster-changed");
  other.epoch = 4;
  EXPECT_EQ(code(other, Source::kIssuer, clock(20s, 20s)), "");
}

// A key that was lost long ago could end any network otherwise.
TEST_F(RostersInForce, OneThatIsOverIsNotTakenFromOthers) {
  take(made(3, 0s, 10h), Source::kIssuer, clock(0s, 0s));
  const identity::Roster over = made(4, 0s, 1h);
  EXPECT_EQ(code(over, Source::kOther, clock(2h, 2h)), "roster-old");
  EXPECT_EQ(code(over, Source::kIssuer, clock(2h, 2h)), "");
  EXPECT_EQ(code(over, Source::kOther, clock(11h, 11h)), "") << "the one held is over too";
}

TEST_F(RostersInForce, ExpiresByTheClocksThatCount) {
  take(made(1, 0s, 1h), Source::kOther, clock(0s, 0s));
  EXPECT_FALSE(force.is_expired(clock(59min, 59min)));
  EXPECT_TRUE(force.is_expired(clock(0s, 61min))) << "by this device's clock";
  EXPECT_TRUE(force.is_expired(clock(61min, 0s))) << "it was held for longer than it lasts";
  RosterClock told = clock(0s, 0s);
  told.authenticated = began + 61min;
  EXPECT_TRUE(force.is_expired(told)) << "a coordinator said what time it is";
}

// What the issuer sends just now is current: a clock that says otherwise is wrong.
TEST_F(RostersInForce, AClockThatIsWrongIsNotAskedAgain) {
  for (const auto off : {std::chrono::hours(2), std::chrono::hours(-2)}) {
    take(made(1, 0s, 1h), Source::kIssuer, clock(0s, off));
    EXPECT_FALSE(force.is_expired(clock(59min, off + 59min)));
    EXPECT_FALSE(force.is_expired(clock(1min, 5h)));
    EXPECT_TRUE(force.is_expired(clock(61min, off + 61min)));
  }
  take(made(2, 0s, 1h), Source::kOther, clock(0s, 2h));
  EXPECT_TRUE(force.is_expired(clock(0s, 2h))) << "others may pass on what is over";
}

}  // namespace
}  // namespace starling::gossip
