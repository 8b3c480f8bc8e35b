// SPDX-License-Identifier: Apache-2.0
#include "core/base/deadlines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/rng.h"

namespace starling {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

TEST(Deadlines, TheEarliestIsNextAndDueOnesComeInOrderOfTimeThenKey) {
  Deadlines<std::string> deadlines;
  EXPECT_FALSE(deadlines.next());
  deadlines.set("late", TimePoint(9s));
  deadlines.set("b", TimePoint(2s));
  deadlines.set("a", TimePoint(2s));
  deadlines.set("z", TimePoint(1s));
  EXPECT_EQ(deadlines.next(), TimePoint(1s));
  EXPECT_THAT(deadlines.take_due(TimePoint(2s) - 1ns), ElementsAre("z"));
  EXPECT_THAT(deadlines.take_due(TimePoint(2s)), ElementsAre("a", "b")) << "at the time itself";
  EXPECT_EQ(deadlines.next(), TimePoint(9s));
  EXPECT_EQ(deadlines.size(), 1U);
}

TEST(Deadlines, AKeyHasOneDeadline) {
  Deadlines<int> deadlines;
  deadlines.set(1, TimePoint(1s));
  deadlines.set(1, TimePoint(5s));
  EXPECT_EQ(deadlines.size(), 1U);
  EXPECT_EQ(deadlines.next(), TimePoint(5s));
  deadlines.set(1, TimePoint(3s));
  EXPECT_EQ(deadlines.next(), TimePoint(3s)) << "an earlier one replaces it too";
  deadlines.clear(1);
  deadlines.clear(2);
  EXPECT_FALSE(deadlines.next());
  EXPECT_TRUE(deadlines.take_due(TimePoint(10s)).empty());
}

TEST(Deadlines, AgreesWithAWalkOverAll) {
  Rng rng({.seed = 3, .purpose = Purpose::kNetwork});
  Deadlines<int> deadlines;
  std::map<int, TimePoint> plain;
  for (int i = 0; i < 20'000; ++i) {
    const int key = static_cast<int>(rng.uniform(0, 50));
    const TimePoint time(Duration(static_cast<std::int64_t>(rng.uniform(0, 1000))));
    const double what = rng.uniform();
    if (what < 0.7) {
      deadlines.set(key, time);
      plain[key] = time;
    } else if (what < 0.9) {
      deadlines.clear(key);
      plain.erase(key);
    } else {
      const TimePoint now(Duration(static_cast<std::int64_t>(rng.uniform(0, 100))));
      const auto due = deadlines.take_due(now);
      const auto expected = std::erase_if(plain, [&](const auto& e) { return e.second <= now; });
      ASSERT_EQ(due.size(), expected);
    }
    ASSERT_EQ(deadlines.size(), plain.size());
    std::optional<TimePoint> next;
    for (const auto& [k, t] : plain) next = next ? std::min(*next, t) : t;
    ASSERT_EQ(deadlines.next(), next);
  }
}

}  // namespace
}  // namespace starling
