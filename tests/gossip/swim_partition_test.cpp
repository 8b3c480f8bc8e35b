// SPDX-License-Identifier: Apache-2.0
// Ten thousand seeded partitions: whatever was cut, lost, crashed or restarted, in bounded time
// after it heals all living members agree on who is alive.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tests/gossip/swim_harness.h"

namespace starling::gossip::membership {
namespace {

constexpr std::uint64_t kSeeds = 2500;  // of each of the four tests
// By swim_machine.h, of 24 members. A crash: (2 * 24 - 3) * P + F + S_max = 45 + 30 + 33 s, where
// F = (1 + 4) * 3 T is taken at T = 2 s. A return: 1.5 * 23 * 2 s = 69 s.
constexpr Duration kBound = std::chrono::seconds(110);
// On a ring, who is not watched is silent for up to 5 P first, and a return may have to mend the
// cycle step by step.
constexpr Duration kRingBound = std::chrono::seconds(160);
constexpr std::uint64_t kRingSeeds = 300;

struct Scenario {
  GroupOptions group;
  std::vector<unsigned> side;  // of each member
  bool one_way = false;        // only from side 0 to the others
  Duration cut_after{};
  Duration cut_for{};
  std::vector<Member> crash;    // in the middle of it
  std::vector<Member> restart;  // of these
};

Duration milliseconds(Rng& rng, int low, int high) {
  return std::chrono::milliseconds(low + static_cast<int>(rng.below(high - low)));
}

Scenario scenario_of(std::uint64_t seed) {
  Rng rng({.seed = seed, .purpose = Purpose::kTest, .round = 1});
  Scenario s;
  s.group.seed = seed;
  s.group.members = static_cast<Member>(3 + rng.below(22));
  s.group.loss = rng.below(2) == 0 ? 0 : rng.uniform(0, 0.1);
  s.group.latency_max = milliseconds(rng, 1, rng.below(4) == 0 ? 250 : 20);
  const unsigned sides = rng.below(3) == 0 ? 3 : 2;
  s.one_way = rng.below(4) == 0;
  for (Member m = 0; m < s.group.members; ++m) {
    s.side.push_back(static_cast<unsigned>(rng.below(sides)));
  }
  s.cut_after = milliseconds(rng, 0, 3000);
  s.cut_for = milliseconds(rng, 500, rng.below(3) == 0 ? 60'000 : 20'000);
  const std::uint64_t crashes = rng.below(3) == 0 ? rng.below(s.group.members - 1) : 0;
  std::vector<Member> all(s.group.members);
  std::iota(all.begin(), all.end(), 0);
  rng.shuffle(std::span(all));
  s.crash.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(crashes));
  const std::uint64_t restarts = crashes == 0 ? 0 : rng.below(crashes + 1);
  s.restart.assign(s.crash.begin(), s.crash.begin() + static_cast<std::ptrdiff_t>(restarts));
  return s;
}

void cut(Group& group, const Scenario& s) {
  for (Member from = 0; from < group.members(); ++from) {
    for (Member to = 0; to < group.members(); ++to) {
      if (s.side[from] != s.side[to] && (!s.one_way || s.side[from] == 0)) group.cut(from, to);
    }
  }
}

std::string disagreement(const Group& group) {
  std::string text;
  for (Member at = 0; at < group.members(); ++at) {
    if (!group.alive(at)) continue;
    text += std::to_string(at) + ":";
    for (Member m = 0; m < group.members(); ++m) {
      text += group.alive(m) ? " l" : " x";
      text += "asd"[static_cast<int>(group.machine(at).state(m))];
    }
    text += '\n';
  }
  return text;
}

void disturb(Group& group, const Scenario& s) {
  group.run_for(s.cut_after);
  cut(group, s);
  group.run_for(s.cut_for / 2);
  for (const Member m : s.crash) group.crash(m);
  group.run_for(s.cut_for / 2);
  for (const Member m : s.restart) group.restart(m);
  group.mend_all();
}

void partition(std::uint64_t seed) {
  const Scenario s = scenario_of(seed);
  Group group(s.group);
  disturb(group, s);
  const TimePoint healed = group.now();
  const bool agreed = group.run_until(healed + kBound, [&] { return group.agrees(); });
  ASSERT_TRUE(agreed) << "seed " << seed << ", who thinks (l: lives, x: does not) what:\n"
                      << disagreement(group);
  // Probes that began before may still end in suspicions, but nobody dies or lives again.
  group.run_for(std::chrono::seconds(2));
  ASSERT_TRUE(group.verdicts_hold()) << "seed " << seed << ", later:\n" << disagreement(group);
}

void partitions(std::uint64_t part) {
  for (std::uint64_t i = 0; i < kSeeds && !::testing::Test::HasFatalFailure(); ++i) {
    partition(part * kSeeds + i);
  }
}

// Where one message in ten is lost somebody is a suspect at any moment, since nobody is asked to
// ping for another; but nobody dies of it.
TEST(SwimPartition, OnARingTheVerdictsHoldToo) {
  for (std::uint64_t seed = 0; seed < kRingSeeds; ++seed) {
    Scenario s = scenario_of(seed);
    s.group.ring = true;
    Group group(s.group);
    disturb(group, s);
    group.run_for(kRingBound);
    ASSERT_TRUE(group.verdicts_hold()) << "seed " << seed << ":\n" << disagreement(group);
    const bool changed = group.run_until(group.now() + std::chrono::seconds(10),
                                         [&] { return !group.verdicts_hold(); });
    ASSERT_FALSE(changed) << "seed " << seed << ", later:\n" << disagreement(group);
  }
}
TEST(SwimPartition, AllAgreeAfterSeeds0To2499) { partitions(0); }
TEST(SwimPartition, AllAgreeAfterSeeds2500To4999) { partitions(1); }
TEST(SwimPartition, AllAgreeAfterSeeds5000To7499) { partitions(2); }
TEST(SwimPartition, AllAgreeAfterSeeds7500To9999) { partitions(3); }

}  // namespace
}  // namespace starling::gossip::membership
