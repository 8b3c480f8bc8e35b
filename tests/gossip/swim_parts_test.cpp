// SPDX-License-Identifier: Apache-2.0
// What the failure detector is made of, each held against its formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "gossip/membership/deadlines.h"
#include "gossip/membership/news_queue.h"
#include "gossip/membership/overlay.h"
#include "gossip/membership/round_trip.h"
#include "gossip/membership/suspicion.h"

namespace starling::gossip::membership {
namespace {

using protocol::Member;
using std::chrono::milliseconds;
using ::testing::ElementsAre;

TEST(RoundTrip, IsRfc6298) {
  RoundTrip round_trip;
  EXPECT_FALSE(round_trip.learned());
  const double samples[] = {0.100, 0.140, 0.080, 0.300, 0.100};
  double mean = 0, deviation = 0;
  for (const double sample : samples) {
    round_trip.learn(from_seconds(sample));
    deviation = mean == 0 ? sample / 2 : 0.75 * deviation + 0.25 * std::abs(mean - sample);
    mean = mean == 0 ? sample : 0.875 * mean + 0.125 * sample;
    EXPECT_NEAR(to_seconds(round_trip.timeout()), mean + 4 * deviation, 1e-7);
  }
}

TEST(Suspicion, TimesGrowWithTheLogarithmOfTheGroup) {
  for (const std::size_t n : {2, 10, 100, 1000}) {
    const auto times = SuspicionTimes::of({}, n);
    EXPECT_NEAR(to_seconds(times.min), 4 * std::max(1.0, std::log10(n)), 1e-6);
    EXPECT_NEAR(to_seconds(times.max), 6 * to_seconds(times.min), 1e-6);
    EXPECT_EQ(times.confirmations, std::min<std::size_t>(3, n - 2));
  }
}

TEST(Suspicion, ShortensByEachOtherMemberOnce) {
  const auto times = SuspicionTimes::of({}, 10);
  Suspicion suspicion(5, TimePoint{});
  EXPECT_EQ(suspicion.lasts(times), times.max);
  EXPECT_FALSE(suspicion.confirm(5, times));
  Duration before = times.max;
  for (const Member by : {1U, 2U, 3U}) {
    EXPECT_TRUE(suspicion.confirm(by, times));
    EXPECT_FALSE(suspicion.confirm(by, times));
    EXPECT_LT(suspicion.lasts(times), before);
    before = suspicion.lasts(times);
  }
  EXPECT_NEAR(to_seconds(before), to_seconds(times.min), 1e-9);
  EXPECT_FALSE(suspicion.confirm(4, times));
}

TEST(NewsQueue, TellsTheLatestFirstThenInTurnAndEachSoOften) {
  NewsQueue queue(6, 2);
  for (const Member m : {1U, 2U, 3U}) queue.add(m);
  EXPECT_THAT(queue.take(2, 0), ElementsAre(3, 2));
  EXPECT_THAT(queue.take(2, 0), ElementsAre(1, 3));
  EXPECT_THAT(queue.take(9, 0), ElementsAre(2, 1));
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_THAT(queue.take(9, 0), ElementsAre());
}

TEST(NewsQueue, WhatChangesIsToldAnewAndNotToWhomItIsAbout) {
  NewsQueue queue(6, 1);
  queue.add(1);
  queue.add(2);
  queue.add(1);
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_THAT(queue.take(1, 5), ElementsAre(1));
  EXPECT_THAT(queue.take(9, 2), ElementsAre());
  EXPECT_THAT(queue.take(9, 1), ElementsAre(2));
}

TEST(Deadlines, AreAPlainTable) {
  Rng rng({.seed = 1});
  Deadlines deadlines(5);
  std::vector<std::optional<TimePoint>> table(5);
  for (int step = 0; step < 2000; ++step) {
    const auto member = static_cast<Member>(rng.below(5));
    const TimePoint time = TimePoint{} + Duration(rng.below(50));
    if (rng.below(3) == 0) {
      deadlines.clear(member);
      table[member].reset();
    } else if (rng.below(2) == 0) {
      deadlines.set(member, time);
      table[member] = time;
    } else if (const auto popped = deadlines.pop(time)) {
      ASSERT_TRUE(table[*popped] && *table[*popped] <= time);
      table[*popped].reset();
    }
    std::optional<TimePoint> next;
    for (const auto& entry : table) {
      if (entry && (!next || *entry < *next)) next = entry;
    }
    ASSERT_EQ(deadlines.next(), next);
  }
}

using Links = std::set<std::pair<std::string, std::string>>;

// Of a cycle alone: each watches the next member that lives on either side.
Links watch_links(const std::vector<std::string>& names, const std::string& run,
                  const std::set<std::string>& dead = {}) {
  Links links;
  for (Member self = 0; self < names.size(); ++self) {
    const Overlay overlay(self, names, run, {});
    const auto is_dead = [&](Member member) { return dead.contains(names[member]); };
    for (const Member other : overlay.watched(is_dead)) {
      links.insert(std::minmax(names[self], names[other]));
    }
  }
  return links;
}

std::size_t shared(const Links& a, const Links& b) {
  std::size_t count = 0;
  for (const auto& link : a) count += b.contains(link);
  return count;
}

// Of the n links of n members, two end with one that leaves, and its two neighbours get one.
TEST(Overlay, AMemberMoreOrLessLeavesAllOtherLinksOfTheCycle) {
  std::vector<std::string> names;
  for (int i = 10; i < 74; ++i) names.push_back("node-" + std::to_string(i));
  const Links before = watch_links(names, "run");
  ASSERT_EQ(before.size(), names.size());
  for (std::size_t gone = 0; gone < names.size(); ++gone) {
    auto rest = names;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(gone));
    const Links after = watch_links(rest, "run");
    ASSERT_EQ(after.size(), rest.size());
    EXPECT_EQ(shared(before, after), names.size() - 2) << names[gone];
  }
}

// As random pairs are, of which the two cycles would have 2 in common.
TEST(Overlay, AnotherRunHasAnotherCycleAndNeitherFollowsTheNames) {
  std::vector<std::string> names;
  for (int i = 10; i < 74; ++i) names.push_back("node-" + std::to_string(i));
  Links in_order;
  for (std::size_t i = 0; i < names.size(); ++i) {
    in_order.insert(std::minmax(names[i], names[(i + 1) % names.size()]));
  }
  const Links one = watch_links(names, "run 1");
  EXPECT_LE(shared(one, watch_links(names, "run 2")), 8U);
  EXPECT_LE(shared(one, in_order), 8U);
}

TEST(Overlay, TheDeadAreLeftOutOfTheCycle) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f"};
  const Links left = watch_links({"a", "b", "d", "f"}, "run");
  const Links alive = watch_links(names, "run", {"c", "e"});
  EXPECT_EQ(shared(alive, left), left.size());
}

TEST(SwimOptions, AreChecked) {
  EXPECT_TRUE(validate({}));
  const auto refused = [](auto change) {
    SwimOptions options;
    change(options);
    const auto result = validate(options);
    return !result && result.error().code() == "bad-swim-option";
  };
  EXPECT_TRUE(refused([](SwimOptions& o) { o.probe_period = Duration::zero(); }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.dead_probe_period = std::chrono::hours(25); }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.probe_timeout_min = milliseconds(501); }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.probe_timeout_max = milliseconds(499); }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.indirect_probes = 65; }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.suspicion_min_factor = 0.5; }));
  EXPECT_TRUE(refused(
      [](SwimOptions& o) { o.suspicion_max_factor = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.dissemination = 0; }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.news_max = 2; }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.news_max = 65; }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.health_max = 65; }));
  EXPECT_TRUE(refused([](SwimOptions& o) { o.late_min = Duration::zero(); }));
}

}  // namespace
}  // namespace starling::gossip::membership
