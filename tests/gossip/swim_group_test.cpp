// SPDX-License-Identifier: Apache-2.0
// Groups of failure detectors on a simulated network: what dies is found, what lives is not lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "tests/gossip/swim_harness.h"

namespace starling::gossip::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

std::size_t deaths(const Group& group) {
  return std::ranges::count(group.changes(), State::kDead, &Group::Change::state);
}
std::size_t suspicions(const Group& group) {
  return std::ranges::count(group.changes(), State::kSuspect, &Group::Change::state);
}

// When `member` first was `state` for each who lives.
std::vector<TimePoint> times_of(const Group& group, Member member, State state) {
  std::map<Member, TimePoint> first;
  for (const auto& change : group.changes()) {
    if (change.member == member && change.state == state) first.emplace(change.at, change.time);
  }
  std::vector<TimePoint> times;
  for (const auto& [at, time] : first) times.push_back(time);
  return times;
}

TEST(SwimGroup, InPeaceNobodyIsSuspectedAndTwoMessagesAPeriodAreSent) {
  for (const Member n : {2U, 5U, 24U, 200U}) {
    Group group({.members = n});
    group.run_for(minutes(1));
    EXPECT_TRUE(group.changes().empty());
    EXPECT_NEAR(static_cast<double>(group.messages()), 2.0 * 60 * n, 2.0 * n);
  }
}

TEST(SwimGroup, ADeadMemberIsFoundByAllWithinTheBoundWhateverIsLost) {
  for (const double loss : {0.0, 0.1, 0.3}) {
    for (const Member n : {2U, 3U, 8U, 24U}) {
      for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        Group group({.members = n, .seed = seed, .loss = loss});
        group.run_for(seconds(20));
        group.crash(0);
        const TimePoint crashed = group.now();
        const double period = to_seconds(SwimOptions{}.probe_period);
        const double failure = (1 + SwimOptions{}.health_max) * 3 * 2;
        const double bound = (2.0 * n - 3) * period + failure +
                             to_seconds(SuspicionTimes::of({}, n).max) +
                             to_seconds(milliseconds(5));
        const bool found = group.run_until(crashed + from_seconds(bound), [&] {
          for (Member at = 1; at < n; ++at) {
            if (group.machine(at).state(0) != State::kDead) return false;
          }
          return true;
        });
        EXPECT_TRUE(found) << "n " << n << ", loss " << loss << ", seed " << seed;
      }
    }
  }
}

// First suspicions: e/(e - 1) periods and F = 1.5 s on average. From there to all the others: an
// epidemic, at two messages a period and node.
TEST(SwimGroup, SuspicionsSpreadInLogarithmicTime) {
  for (const Member n : {8U, 32U, 128U, 512U}) {
    double first_sum = 0, spread_max = 0, death_max = 0;
    constexpr int kRuns = 10;
    for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
      Group group({.members = n, .seed = seed});
      group.run_for(seconds(3));
      group.crash(1);
      const TimePoint crashed = group.now();
      ASSERT_TRUE(group.run_until(crashed + minutes(2), [&] { return group.agrees(); }));
      const auto suspected = times_of(group, 1, State::kSuspect);
      ASSERT_EQ(suspected.size(), n - 1);
      const auto [first, last] = std::ranges::minmax(suspected);
      first_sum += to_seconds(first - crashed);
      spread_max = std::max(spread_max, to_seconds(last - first));
      death_max = std::max(death_max, to_seconds(group.now() - last));
      EXPECT_EQ(deaths(group), n - 1);
    }
    EXPECT_LT(first_sum / kRuns, std::exp(1) / (std::exp(1) - 1) + 1.5 + 1) << n;
    EXPECT_LT(spread_max, 1 + std::log2(n)) << n;
    // Confirmations take it nearer to S_min than to S_max, which is six times that.
    EXPECT_LT(death_max, 2.5 * to_seconds(SuspicionTimes::of({}, n).min)) << n;
  }
}

TEST(SwimGroup, NobodyDiesOfLosses) {
  for (const double loss : {0.05, 0.1, 0.2}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Group group({.members = 16, .seed = seed, .loss = loss});
      group.run_for(minutes(10));
      EXPECT_EQ(deaths(group), 0U) << "loss " << loss << ", seed " << seed;
    }
  }
}

TEST(SwimGroup, SlowMembersAreLearnedAndNotLost) {
  for (const Duration slow : {milliseconds(300), milliseconds(1700)}) {
    Group group({.members = 12});
    group.slow_down(3, slow);
    group.slow_down(7, slow);
    group.run_for(minutes(2));
    const std::size_t before = suspicions(group);
    EXPECT_EQ(deaths(group), 0U);
    group.run_for(minutes(5));
    EXPECT_EQ(deaths(group), 0U);
    // Once measured, it is waited for.
    EXPECT_EQ(suspicions(group), before) << to_seconds(slow);
  }
}

TEST(SwimGroup, ALinkCutOneWayOrBothKillsNobody) {
  for (const bool both : {false, true}) {
    Group group({.members = 8});
    group.cut(1, 2);
    if (both) group.cut(2, 1);
    group.run_for(minutes(10));
    EXPECT_EQ(suspicions(group), 0U);
    // Without others to ask it would have.
    GroupOptions options{.members = 8};
    options.swim.indirect_probes = 0;
    Group alone(options);
    alone.cut(1, 2);
    alone.cut(2, 1);
    alone.run_for(minutes(10));
    EXPECT_GT(suspicions(alone), 0U);
  }
}

TEST(SwimGroup, ARestartedProcessRefutesThatItIsDead) {
  for (const Duration down : {seconds(1), seconds(60)}) {
    Group group({.members = 8});
    group.run_for(seconds(5));
    group.crash(3);
    group.run_for(down);
    const std::uint32_t believed = group.machine(0).incarnation(3);
    EXPECT_EQ(group.machine(0).state(3) == State::kDead, down == seconds(60));
    group.restart(3);
    EXPECT_EQ(group.machine(3).incarnation(), 0U);
    group.run_for(seconds(15));
    EXPECT_TRUE(group.agrees());
    if (down == seconds(60)) {
      EXPECT_EQ(group.machine(3).incarnation(), believed + 1);
    }
    // Twice dead, and back at a higher incarnation.
    group.crash(3);
    group.run_for(seconds(60));
    group.restart(3);
    group.run_for(seconds(20));
    EXPECT_TRUE(group.agrees());
    EXPECT_GE(group.machine(3).incarnation(), 1U);
  }
}

TEST(SwimGroup, APausedMemberComesBackAndCallsNobodyDead) {
  for (const Duration pause : {seconds(5), seconds(30)}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Group group({.members = 8, .seed = seed});
      group.run_for(seconds(5));
      group.pause(2, to_seconds(pause));
      group.run_for(pause);
      EXPECT_TRUE(group.run_until(group.now() + seconds(20), [&] { return group.agrees(); }));
      for (const auto& change : group.changes()) {
        EXPECT_TRUE(change.at != 2 || change.state != State::kDead) << "seed " << seed;
      }
      group.run_for(seconds(30));
      EXPECT_TRUE(group.agrees()) << "seed " << seed;
    }
  }
}

TEST(SwimGroup, LostLinksAreFoundSooner) {
  double by_probes = 0, by_links = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool told : {false, true}) {
      Group group({.members = 24, .seed = seed});
      group.run_for(seconds(5));
      group.crash(0);
      const TimePoint crashed = group.now();
      for (Member m = 1; told && m < 24; ++m) group.feed(m, LinkLost{0});
      ASSERT_TRUE(group.run_until(crashed + minutes(2), [&] { return group.agrees(); }));
      (told ? by_links : by_probes) += to_seconds(group.now() - crashed) / 20;
    }
  }
  EXPECT_LT(by_links, by_probes);
  // F and S_min, and half a period in which the suspicions confirm each other.
  EXPECT_LT(by_links, 1.5 + to_seconds(SuspicionTimes::of({}, 24).min) + 0.5);
}

TEST(SwimGroup, TheSameSeedDoesTheSame) {
  const auto run = [](std::uint64_t seed) {
    Group group({.members = 12, .seed = seed, .loss = 0.1});
    group.run_for(seconds(5));
    for (Member m = 0; m < 6; ++m) {
      for (Member other = 6; other < 12; ++other) group.cut(m, other);
    }
    group.crash(3);
    group.run_for(seconds(30));
    group.mend_all();
    group.restart(3);
    group.run_for(seconds(30));
    return std::pair(group.trace(), group.changes());
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1).first, run(2).first);
}

// On a ring of 64 every member speaks with its two neighbours and with two on the overlay's cycle.
TEST(SwimGroup, OnARingAMemberSpeaksWithFour) {
  Group group({.members = 64, .ring = true});
  group.run_for(minutes(1));
  EXPECT_TRUE(group.changes().empty());
  for (Member m = 0; m < 64; ++m) EXPECT_LE(group.partners(m), 4U) << m;
}

// No message of the other one comes, whatever comes through others.
TEST(SwimGroup, OnARingALinkThatIsCutIsFoundByItsEndsAlone) {
  Group group({.members = 16, .ring = true});
  group.run_for(seconds(20));
  group.cut(3, 4);
  group.cut(4, 3);
  group.run_for(seconds(40));
  for (Member at = 0; at < 16; ++at) {
    for (Member m = 0; m < 16; ++m) {
      const bool is_cut =
          std::pair(std::min(at, m), std::max(at, m)) == std::pair(Member{3}, Member{4});
      EXPECT_EQ(group.machine(at).state(m) == State::kDead, is_cut) << at << " of " << m;
    }
  }
  group.mend_all();
  EXPECT_TRUE(group.run_until(group.now() + seconds(30), [&] { return group.agrees(); }));
}

// Though most of the other half were never spoken with.
TEST(SwimGroup, OnARingEachHalfFindsTheOtherOneGoneAndBack) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Group group({.members = 64, .seed = seed, .ring = true});
    group.run_for(seconds(20));
    const auto side = [](Member m) { return m < 32; };
    for (Member a = 0; a < 64; ++a) {
      for (Member b = 0; b < 64; ++b) {
        if (side(a) != side(b)) group.cut(a, b);
      }
    }
    const auto the_others_are_dead = [&](bool dead) {
      for (Member at = 0; at < 64; ++at) {
        for (Member m = 0; m < 64; ++m) {
          const bool expected = dead && side(at) != side(m);
          if ((group.machine(at).state(m) == State::kDead) != expected) return false;
        }
      }
      return true;
    };
    const auto within = [&](Duration time, bool dead) {
      return group.run_until(group.now() + time, [&] { return the_others_are_dead(dead); });
    };
    EXPECT_TRUE(within(seconds(30), true)) << "seed " << seed;
    group.mend_all();
    EXPECT_TRUE(within(seconds(30), false)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace starling::gossip::membership
