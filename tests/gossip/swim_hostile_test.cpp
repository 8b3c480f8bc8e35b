// SPDX-License-Identifier: Apache-2.0
// Peers that lie, with certificates in order: a failure detector stays small, never calls itself
// dead, and a living member that is lied about defends itself.
#include <gtest/gtest.h>

#include "tests/gossip/swim_harness.h"

namespace starling::gossip::membership {
namespace {

using protocol::Swim;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Member kMembers = 9;

std::uint64_t nearly(Rng& rng, std::uint64_t bound) {  // sometimes beyond
  return rng.below(8) == 0 ? rng.next_u64() >> rng.below(64) : rng.below(bound);
}

Swim random_swim(Rng& rng, const SwimMachine& victim, std::uint64_t seen) {
  Swim swim{.kind = static_cast<Swim::Kind>(rng.below(4)),
            .epoch = nearly(rng, 2),
            .sequence = rng.below(2) == 0 ? seen : rng.next_u64(),
            .target = static_cast<Member>(nearly(rng, kMembers))};
  swim.news.resize(rng.below(70));
  for (auto& news : swim.news) {
    news = {static_cast<Member>(nearly(rng, kMembers)), static_cast<State>(rng.below(4)), 0,
            static_cast<Member>(nearly(rng, kMembers))};
    const std::uint32_t known = news.member < kMembers ? victim.incarnation(news.member) : 0;
    news.incarnation = static_cast<std::uint32_t>(
        rng.below(4) == 0 ? nearly(rng, kIncarnationMax + 2ULL) : known + rng.below(3));
  }
  return swim;
}

TEST(SwimHostile, RandomMessagesNeitherGrowNorKillTheMachine) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng({.seed = seed});
    TimePoint now{};
    SwimMachine machine({}, 1, 4, kMembers, Rng({.seed = seed, .round = 1}), now);
    std::uint64_t seen = 0;
    for (int i = 0; i < 4000; ++i) {
      now += Duration(static_cast<std::int64_t>(nearly(rng, 300'000'000) % 5'000'000'000));
      Event event =
          Received{static_cast<Member>(nearly(rng, kMembers)), random_swim(rng, machine, seen)};
      const auto choice = rng.below(8);
      if (choice == 0) event = Heard{static_cast<Member>(nearly(rng, kMembers))};
      if (choice == 1) event = LinkLost{static_cast<Member>(nearly(rng, kMembers))};
      if (choice >= 6) event = Tick{};
      const auto actions = machine.on(event, now);
      ASSERT_LE(actions.size(), 300U);
      for (const Action& action : actions) {
        if (const auto* changed = std::get_if<Changed>(&action)) {
          ASSERT_LT(changed->member, kMembers);
          ASSERT_NE(changed->member, 4U) << "seed " << seed;
          continue;
        }
        const Send& send = std::get<Send>(action);
        seen = send.swim.sequence;
        ASSERT_TRUE(send.to < kMembers && send.to != 4);
        ASSERT_LE(send.swim.news.size(), SwimOptions{}.news_max);
        ASSERT_EQ(send.swim.news[0].member, 4U);
        ASSERT_EQ(send.swim.news[0].state, State::kAlive);
        for (const auto& news : send.swim.news) {
          ASSERT_LE(news.incarnation, kIncarnationMax);
          ASSERT_TRUE(news.member < kMembers && news.by < kMembers);
        }
      }
      ASSERT_EQ(machine.state(4), State::kAlive);
      ASSERT_TRUE(machine.next_deadline());
      ASSERT_LE(machine.entries(), kMembers * (1 + kRelaysMax + SwimOptions{}.indirect_probes));
      std::size_t reachable = 0;
      for (Member m = 0; m < kMembers; ++m) reachable += machine.state(m) != State::kDead;
      ASSERT_EQ(machine.reachable(), reachable);
    }
  }
}

// Member 0 tells everybody five times a second that member 1 is dead, in all others' names.
TEST(SwimHostile, ALiarCausesSuspicionsThatAreRefuted) {
  Group group({.members = 10, .loss = 0.02});
  group.run_for(seconds(5));
  for (int lie = 0; lie < 1500; ++lie) {
    group.run_for(milliseconds(200));
    for (Member to = 1; to < 10; ++to) {
      Swim swim{.kind = Swim::Kind::kAck, .epoch = 1};
      const std::uint32_t incarnation = group.machine(to).incarnation(1);
      for (Member by = 2; by < 8; ++by) swim.news.push_back({1, State::kDead, incarnation, by});
      group.feed(to, Received{0, swim});
    }
  }
  std::size_t suspicions = 0;
  for (const auto& change : group.changes()) {
    suspicions += change.state == State::kSuspect;
    EXPECT_FALSE(change.at != 0 && change.state == State::kDead) << change.at << change.member;
  }
  EXPECT_GT(suspicions, 100U);
  group.run_for(seconds(20));
  for (Member at = 1; at < 10; ++at) EXPECT_EQ(group.machine(at).state(1), State::kAlive);
}

// Member 9 tells everybody five times a second that member 3, which is dead, lives on.
TEST(SwimHostile, NeighboursFindADeadMemberThatALiarKeepsAlive) {
  for (const bool news : {false, true}) {
    SCOPED_TRACE(news);
    constexpr Member kDeadOne = 3;
    Group group({.members = 16, .ring = true});
    group.run_for(seconds(5));
    group.crash(kDeadOne);
    std::vector<std::uint64_t> beats(16);
    const auto lie_for = [&](Duration time) {
      const TimePoint end = group.now() + time;
      while (group.now() < end) {
        group.run_for(milliseconds(200));
        beats[kDeadOne] += 1000;
        for (Member to = 0; to < 16; ++to) {
          if (to == 9 || to == kDeadOne) continue;
          Swim swim{.kind = Swim::Kind::kAck, .epoch = 1, .beats = beats};
          const std::uint32_t next = group.machine(to).incarnation(kDeadOne) + 1;
          if (news) swim.news = {{3, State::kSuspect, next, 9}, {3, State::kAlive, next + 1, 3}};
          group.feed(to, Received{9, swim});
        }
      }
    };
    lie_for(seconds(40));  // without anybody who confirms a suspicion it lasts 29 s
    for (int i = 0; i < 10; ++i) {
      for (const Member at : {2U, 4U}) EXPECT_EQ(group.machine(at).state(kDeadOne), State::kDead);
      lie_for(seconds(2));
    }
    group.restart(kDeadOne);
    EXPECT_TRUE(group.run_until(group.now() + seconds(60), [&] { return group.agrees(); }));
  }
}

// Driven to the last incarnation, where it can refute no more, a member lives on, and its death is
// still found.
TEST(SwimHostile, TheLastIncarnationIsNoTrap) {
  Group group({.members = 10});
  group.run_for(seconds(5));
  group.feed(1, Received{0,
                         {.kind = Swim::Kind::kAck,
                          .epoch = 1,
                          .news = {{1, State::kDead, kIncarnationMax - 1, 0}}}});
  group.run_for(seconds(30));
  EXPECT_EQ(group.machine(5).incarnation(1), kIncarnationMax);
  for (int lie = 0; lie < 100; ++lie) {
    group.run_for(milliseconds(200));
    for (Member to = 1; to < 10; ++to) {
      group.feed(to, Received{0,
                              {.kind = Swim::Kind::kAck,
                               .epoch = 1,
                               .news = {{1, State::kDead, kIncarnationMax, 3}}}});
    }
  }
  EXPECT_TRUE(group.agrees());
  EXPECT_TRUE(group.changes().empty());
  group.crash(1);
  EXPECT_TRUE(group.run_until(group.now() + seconds(80), [&] { return group.agrees(); }));
  group.restart(1);
  EXPECT_TRUE(group.run_until(group.now() + seconds(60), [&] { return group.agrees(); }));
}

}  // namespace
}  // namespace starling::gossip::membership
