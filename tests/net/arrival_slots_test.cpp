// SPDX-License-Identifier: Apache-2.0
#include "core/net/arrival_slots.h"

#include <gtest/gtest.h>

#include <deque>

namespace starling::net {
namespace {

using std::chrono::milliseconds;
using Answer = ArrivalSlots::Answer;
using Id = ArrivalSlots::Id;

class ArrivalSlotsTest : public ::testing::Test {
 public:
  Id take(const std::string& address, std::uint64_t bytes_in = 0, std::uint64_t bytes_out = 0) {
    progress.push_back({.wire_bytes_in = bytes_in, .wire_bytes_out = bytes_out});
    return slots.take(address, progress.back(), now);
  }
  void make(const ArrivalSlots::Options& options) { slots = ArrivalSlots(options); }
  Answer answer(const std::string& address) const { return slots.verdict_on(address, now).answer; }
  Id victim(const std::string& address) const {
    const auto verdict = slots.verdict_on(address, now);
    return verdict.answer == Answer::kEvict ? verdict.victim : 0;
  }

  std::deque<ConnectionCounters> progress;
  TimePoint now{std::chrono::hours(1)};
  ArrivalSlots slots{
      {.slots_max = 4, .per_address_max = 3, .undisturbed = std::chrono::milliseconds(500)}};
};

TEST_F(ArrivalSlotsTest, AreFreeUntilAllAreTaken) {
  for (int i = 0; i < 4; ++i) {
    const std::string address = "192.0.2." + std::to_string(i);
    EXPECT_EQ(answer(address), Answer::kFree);
    take(address, 500, 2000);
  }
  const auto verdict = slots.verdict_on("192.0.2.9", now);
  EXPECT_EQ(verdict.answer, Answer::kWait);
  EXPECT_EQ(verdict.until, now + milliseconds(500));
}

TEST_F(ArrivalSlotsTest, WhoWasNotAnsweredMakesRoomEarlierThanWhoWas) {
  take("192.0.2.1", 500, 2000);
  now += milliseconds(300);
  const Id began = take("192.0.2.2", 1, 0);
  const Id silent = take("192.0.2.3");
  take("192.0.2.4", 500, 2000);
  const auto verdict = slots.verdict_on("192.0.2.9", now);
  EXPECT_EQ(verdict.answer, Answer::kWait);
  EXPECT_EQ(verdict.until, now + milliseconds(100));
  now += milliseconds(100);
  EXPECT_EQ(victim("192.0.2.9"), silent);
  slots.leave(silent);
  take("192.0.2.5");
  EXPECT_EQ(victim("192.0.2.9"), began);
}

TEST_F(ArrivalSlotsTest, WhoGotLeastFarMakesRoomOnceItsTimeIsUp) {
  take("192.0.2.1", 500, 2000);
  take("192.0.2.2", 500, 0);
  const Id silent = take("192.0.2.3");
  take("192.0.2.4");
  now += milliseconds(500);
  EXPECT_EQ(victim("192.0.2.9"), silent);
  EXPECT_TRUE(slots.leave(silent));
  EXPECT_FALSE(slots.leave(silent));
  EXPECT_EQ(answer("192.0.2.9"), Answer::kFree);
}

TEST_F(ArrivalSlotsTest, AnAddressThatHoldsMoreThanOthersMakesRoomAtOnce) {
  take("192.0.2.1");
  const Id oldest_of_three = take("192.0.2.2");
  take("192.0.2.2");
  take("192.0.2.2");
  EXPECT_EQ(victim("192.0.2.9"), oldest_of_three);
}

TEST_F(ArrivalSlotsTest, AnAddressThatHoldsMoreMakesRoomBeforeOneThatIsSlow) {
  take("192.0.2.1");
  now += milliseconds(500);
  const Id oldest_of_three = take("192.0.2.2", 500, 2000);
  take("192.0.2.2", 500, 2000);
  take("192.0.2.2", 500, 2000);
  EXPECT_EQ(victim("192.0.2.9"), oldest_of_three);
}

TEST_F(ArrivalSlotsTest, ANewcomerWhoWasNotAnsweredYetIsNotEvictedForThoseThatWere) {
  const Id old = take("192.0.2.1", 500, 2000);
  now += milliseconds(500);
  take("192.0.2.1");
  take("192.0.2.1");
  take("192.0.2.2");
  EXPECT_EQ(victim("192.0.2.9"), old);
}

TEST_F(ArrivalSlotsTest, NoAddressTakesMoreThanItsShare) {
  const Id first = take("192.0.2.1");
  take("192.0.2.1");
  take("192.0.2.1");
  EXPECT_EQ(answer("192.0.2.1"), Answer::kRefuse);
  EXPECT_EQ(answer("192.0.2.2"), Answer::kFree);
  now += milliseconds(500);
  EXPECT_EQ(victim("192.0.2.1"), first);
}

TEST_F(ArrivalSlotsTest, WhereOneAddressMayHoldAllItsNewcomersWait) {
  make({.slots_max = 2, .per_address_max = 2});
  take("127.0.0.1");
  take("127.0.0.1");
  EXPECT_EQ(answer("127.0.0.1"), Answer::kWait);
}

TEST_F(ArrivalSlotsTest, AnIpv6NetworkIsOneAddress) {
  take("2001:db8::1");
  take("2001:db8::2");
  take("2001:db8::ffff:3");
  EXPECT_EQ(answer("2001:db8::4"), Answer::kRefuse);
  EXPECT_EQ(answer("2001:db8:0:1::4"), Answer::kFree);
}

// The attack that locked newcomers out: many half-open connections from a few addresses, each kept
// as long as it may.
TEST_F(ArrivalSlotsTest, HalfOpenConnectionsFromEightAddressesKeepNobodyOut) {
  make({});
  std::map<Id, TimePoint> half_open;
  for (int i = 0; i < 3000; ++i) {
    now += milliseconds(1000) / 150;
    while (!half_open.empty() && half_open.begin()->second <= now) {
      slots.leave(half_open.begin()->first);
      half_open.erase(half_open.begin());
    }
    const std::string attacker = "198.51.100." + std::to_string(i % 8);
    const auto verdict = slots.verdict_on(attacker, now);
    if (verdict.answer == Answer::kEvict) {
      slots.leave(verdict.victim);
      half_open.erase(verdict.victim);
    }
    if (verdict.answer == Answer::kEvict || verdict.answer == Answer::kFree) {
      half_open.emplace(take(attacker, 200, 0), now + std::chrono::seconds(5));
    }
    const Answer newcomers = answer("192.0.2.1");
    ASSERT_TRUE(newcomers == Answer::kFree || newcomers == Answer::kEvict) << i;
  }
  EXPECT_EQ(slots.taken(), 256U);
}

// From so many addresses that each holds one slot at most: newcomers are let in all the same, and
// have as long as ever to answer once they were answered.
TEST_F(ArrivalSlotsTest, HalfOpenConnectionsFromAThousandAddressesKeepNobodyOut) {
  make({});
  const Id honest = take("192.0.2.1", 500, 2000);
  for (int i = 0; i < 490; ++i) {
    now += milliseconds(1);
    const std::string attacker = "2001:db8:0:" + std::to_string(i) + "::1";
    const auto verdict = slots.verdict_on(attacker, now);
    ASSERT_TRUE(verdict.answer == Answer::kFree || verdict.answer == Answer::kEvict) << i;
    if (verdict.answer == Answer::kEvict) {
      ASSERT_NE(verdict.victim, honest);
      slots.leave(verdict.victim);
    }
    take(attacker, i % 2, 0);
  }
  EXPECT_EQ(slots.taken(), 256U);
}

}  // namespace
}  // namespace starling::net
