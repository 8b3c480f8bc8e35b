// SPDX-License-Identifier: Apache-2.0
// For how long a claim to be further is not believed after one that led to a copy.
#include "gossip/collective/doubted_members.h"

#include <gtest/gtest.h>

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using protocol::Member;

constexpr Member kLiar = 3;
constexpr Member kOther = 1;

TEST(DoubtedMembers, WhoLedUsOnIsDoubtedTwiceAsLongEachTime) {
  DoubtedMembers doubted(16s);
  TimePoint now{1000s};
  for (int i = 0; i <= 10; ++i) {
    const Duration time = 1s * (1 << i);
    doubted.led_on(kLiar, now);
    EXPECT_TRUE(doubted.contains(kLiar, now + time - 1ms));
    EXPECT_FALSE(doubted.contains(kLiar, now + time));
    now += time;
  }
  now += 1023s;
  doubted.led_on(kLiar, now);
  EXPECT_TRUE(doubted.contains(kLiar, now + 1023s)) << "it is not forgotten, nor doubted longer";
  EXPECT_FALSE(doubted.contains(kLiar, now + 1024s));
  now += 2048s;
  doubted.led_on(kLiar, now);
  EXPECT_FALSE(doubted.contains(kLiar, now + 1s));
  EXPECT_FALSE(doubted.contains(kOther, now));
}

TEST(DoubtedMembers, WhoseClaimCameToNothingIsDoubtedAsLongAsOneWaits) {
  DoubtedMembers doubted(16s);
  const TimePoint now{1000s};
  doubted.led_on(kLiar, now);
  doubted.came_to_nothing(kLiar, now);
  EXPECT_TRUE(doubted.contains(kLiar, now + 15s));
  EXPECT_FALSE(doubted.contains(kLiar, now + 16s));
  doubted.came_to_nothing(kLiar, now);
  EXPECT_TRUE(doubted.contains(kLiar, now + 31s));
}

}  // namespace
}  // namespace starling::collective
