// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/ahead_bound.h"

#include <gtest/gtest.h>

#include <limits>

namespace starling::gossip {
namespace {

using std::chrono::seconds;

TEST(AheadBound, GrowsWithTheTimeSinceTheyWereInStep) {
  AheadBound others;
  others.in_step(100, TimePoint{} + seconds(50));
  const TimePoint later = TimePoint{} + seconds(60);
  EXPECT_EQ(others.alone(seconds(2), later), 105U);
  EXPECT_EQ(others.confirmed(seconds(2), later), 100U + 16 * 5 + 8);
  EXPECT_EQ(others.confirmed(seconds(2), later, 4), 100U + 16 * 5 + 8 + 4);
}

TEST(AheadBound, IsNoneBeforeTheFirstStepAndWithoutAPace) {
  AheadBound others;
  EXPECT_FALSE(others.alone(seconds(2), TimePoint{} + seconds(9)));
  others.in_step(3, TimePoint{});
  EXPECT_FALSE(others.alone(std::nullopt, TimePoint{} + seconds(9)));
  EXPECT_FALSE(others.confirmed(std::nullopt, TimePoint{} + seconds(9)));
}

// Where nothing takes time, or the clock is far on.
TEST(AheadBound, DoesNotOverflow) {
  AheadBound others;
  others.in_step(3, TimePoint{});
  const auto most = others.confirmed(Duration{}, TimePoint{} + std::chrono::hours(1'000'000));
  ASSERT_TRUE(most);
  EXPECT_GT(*most, 1U << 30);
  EXPECT_LT(*most, std::numeric_limits<protocol::Exchange>::max() / 2);
}

}  // namespace
}  // namespace starling::gossip
