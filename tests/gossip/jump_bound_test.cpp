// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/jump_bound.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(JumpBound, AtTheStartOfARunNobodyIsFar) {
  JumpBound bound(Duration::zero(), TimePoint{});
  EXPECT_EQ(bound.limit(1, 4, TimePoint{} + minutes(5)), 12U) << "no phase was measured yet";
  bound.trained(milliseconds(100));
  EXPECT_EQ(bound.limit(1, 4, TimePoint{} + seconds(1)), 40U + 12);
  EXPECT_EQ(bound.limit(2, 4, TimePoint{} + seconds(1)), 160U + 12);
}

// The sum of all jumps is limited: it makes no difference how often somebody is believed.
TEST(JumpBound, TheQuickestPhaseCounts) {
  JumpBound bound(Duration::zero(), TimePoint{});
  bound.trained(milliseconds(100));
  bound.trained(seconds(5));
  EXPECT_EQ(bound.limit(1, 0, TimePoint{} + seconds(1)), 48U);
  bound.trained(milliseconds(50));
  EXPECT_EQ(bound.limit(1, 0, TimePoint{} + seconds(1)), 88U);
}

TEST(JumpBound, WhoJoinsLateMayFollowAtOnce) {
  JumpBound bound(minutes(20), TimePoint{} + seconds(7));
  bound.trained(milliseconds(100));
  EXPECT_GE(*bound.limit(1, 0, TimePoint{} + seconds(7)), 10'000U);
}

TEST(JumpBound, WithoutTheRunsAgeNothingIsLimited) {
  JumpBound bound(std::nullopt, TimePoint{});
  bound.trained(milliseconds(100));
  EXPECT_FALSE(bound.limit(1, 0, TimePoint{} + seconds(1)));
}

TEST(JumpBound, NumbersStayInRange) {
  JumpBound bound(std::chrono::hours(24 * 365), TimePoint{});
  bound.trained(Duration::zero());
  EXPECT_LT(*bound.limit(2, 1'000, TimePoint{} + std::chrono::hours(24 * 365)),
            protocol::Exchange{1} << 60);
  JumpBound future(-minutes(1), TimePoint{});
  future.trained(seconds(1));
  EXPECT_EQ(future.limit(1, 0, TimePoint{}), 8U);
}

}  // namespace
}  // namespace starling::gossip
