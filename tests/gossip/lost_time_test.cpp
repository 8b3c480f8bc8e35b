// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/lost_time.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using std::chrono::seconds;

TEST(LostTime, IsMadeUpForOnce) {
  LostTime lost;
  EXPECT_EQ(lost.left(TimePoint{}), Duration::zero());
  lost.add(seconds(10), TimePoint{});
  lost.add(seconds(5), TimePoint{} + seconds(1));
  EXPECT_EQ(lost.left(TimePoint{} + seconds(2)), seconds(15));
  lost.make_up_for(seconds(12));
  EXPECT_EQ(lost.left(TimePoint{} + seconds(2)), seconds(3));
  lost.make_up_for(seconds(12));
  EXPECT_EQ(lost.left(TimePoint{} + seconds(2)), Duration::zero());
}

TEST(LostTime, ExplainsNothingLongAfterwards) {
  LostTime lost;
  lost.add(seconds(10), TimePoint{});
  EXPECT_EQ(lost.left(TimePoint{} + LostTime::kKept), Duration::zero());
  lost.add(seconds(5), TimePoint{} + 2 * LostTime::kKept);
  EXPECT_EQ(lost.left(TimePoint{} + 2 * LostTime::kKept), seconds(5)) << "the first is forgotten";
}

TEST(LostTime, NorOnceAllAreInStep) {
  LostTime lost;
  lost.add(seconds(10), TimePoint{});
  for (int i = 1; i < LostTime::kInStep; ++i) lost.exchanged();
  EXPECT_EQ(lost.left(TimePoint{}), seconds(10)) << "old messages of a link";
  lost.exchanged();
  EXPECT_EQ(lost.left(TimePoint{}), Duration::zero());
}

}  // namespace
}  // namespace starling::gossip
