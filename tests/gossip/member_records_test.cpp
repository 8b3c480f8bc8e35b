// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/member_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The gatherer is "g".
class Records : public ::testing::Test {
 protected:
  std::set<std::string> over() const { return records_.over_budget("g", now_); }

  MemberRecords records_{{.budget = 30s, .forgiven = 10}};
  TimePoint now_{1000s};
};

TEST_F(Records, AWaitIsRememberedUntilItIsForgiven) {
  EXPECT_FALSE(records_.has_waits(now_));
  records_.waited("g", "l", 2s, now_);
  EXPECT_TRUE(records_.has_waits(now_ + 19s));
  EXPECT_FALSE(records_.has_waits(now_ + 20s));
}

TEST_F(Records, SoManyAtMostAreOverTheirBudget) {
  MemberRecords one{{.budget = 30s, .forgiven = 10, .over_max = 1}};
  for (MemberRecords* const records : {&one, &records_}) {
    records->waited("g", "l", 31s, now_);
    records->waited("g", "m", 32s, now_);
  }
  EXPECT_THAT(one.over_budget("g", now_), ElementsAre("m"));
  EXPECT_THAT(over(), ElementsAre("l", "m"));
}

TEST_F(Records, WhoHeldOthersUpForItsBudgetIsWaitedForAgainOnceSomeIsForgiven) {
  records_.waited("g", "l", 29s, now_);
  EXPECT_THAT(over(), IsEmpty());
  records_.waited("g", "l", 2s, now_);
  EXPECT_THAT(over(), ElementsAre("l"));
  now_ += 9s;
  EXPECT_THAT(over(), ElementsAre("l"));
  now_ += 2s;
  EXPECT_THAT(over(), IsEmpty());
}

// However long it was, it is back in ten times the budget.
TEST_F(Records, WhatIsOwedIsBounded) {
  for (int i = 0; i < 100; ++i) records_.waited("g", "l", 1h, now_);
  EXPECT_EQ(records_.owed("l", now_), 60s);
  now_ += 301s;
  EXPECT_THAT(over(), IsEmpty());
}

// Of two of whom one waited for the other nobody knows which lies.
TEST_F(Records, OfTwoTheOneThatWasWaitedForIsTaken) {
  records_.waited("w", "l", 40s, now_);
  EXPECT_THAT(over(), ElementsAre("l"));
}

// Which has a part in all of them, as the one that waits or the one that is waited for.
TEST_F(Records, WhoHasAPartInMostWaitsIsTheCause) {
  for (const char* const other : {"a", "b", "c"}) records_.waited("l", other, 20s, now_);
  EXPECT_THAT(over(), ElementsAre("l"));
  for (const char* const other : {"a", "b", "c"}) records_.waited(other, "m", 31s, now_);
  EXPECT_THAT(over(), ElementsAre("l", "m"));
}

TEST_F(Records, OneselfIsNeverTaken) {
  for (const char* const other : {"a", "b", "c"}) records_.waited("g", other, 20s, now_);
  EXPECT_THAT(over(), IsEmpty());
  records_.waited("a", "g", 20s, now_);
  EXPECT_THAT(over(), ElementsAre("a"));
}

// Others may have held it up.
TEST_F(Records, HalfOfTheWaitForOneThatIsLateIsForgivenWhenItComes) {
  records_.was_late("g", "a", 10s, now_);
  records_.was_late("g", "a", 10s, now_);
  records_.waited("g", "a", 4s, now_);
  records_.came("g", "a", now_);
  EXPECT_EQ(records_.owed("a", now_), 14s);
  records_.came("g", "a", now_);
  EXPECT_EQ(records_.owed("a", now_), 14s);
  records_.came("g", "b", now_);
  EXPECT_EQ(records_.owed("b", now_), 0s);
}

TEST_F(Records, NoMoreThanHalfIsForgivenHoweverLongItWasLate) {
  for (int i = 0; i < 100; ++i) records_.was_late("g", "a", 10s, now_);
  EXPECT_EQ(records_.owed("a", now_), 60s);
  now_ += 100s;
  records_.came("g", "a", now_);
  EXPECT_EQ(records_.owed("a", now_), 25s);
}

TEST_F(Records, WhoHasAPartInComplaintsWithSeveralSendsWrongNumbers) {
  for (int i = 0; i < 6; ++i) {
    records_.complained("a", "l", 3s, now_);
    records_.complained("b", "l", 3s, now_);
  }
  EXPECT_TRUE(records_.sends_wrong("l", now_));
  EXPECT_FALSE(records_.sends_wrong("a", now_));
  EXPECT_THAT(records_.over_complaints("g", now_), ElementsAre("l"));
}

// However often it complains, and though once another did too.
TEST_F(Records, OneThatComplainsOfAnotherBringsNothingUponIt) {
  records_.complained("c", "a", 3s, now_);
  for (int i = 0; i < 12; ++i) records_.complained("l", "a", 3s, now_);
  EXPECT_FALSE(records_.sends_wrong("a", now_));
  EXPECT_FALSE(records_.sends_wrong("l", now_));
  EXPECT_THAT(records_.over_complaints("g", now_), IsEmpty());
}

TEST_F(Records, TwoOfWhomNothingElseIsKnownTakeTurns) {
  const std::string first = records_.take_turns("a", "l", 7);
  EXPECT_EQ(records_.take_turns("l", "a", 7), first) << "one exchange is one turn";
  EXPECT_NE(records_.take_turns("a", "l", 8), first);
  EXPECT_EQ(records_.take_turns("a", "l", 9), first);
}

TEST_F(Records, WhoGaveNoMeanIsAskedLastUntilItGivesOne) {
  records_.gave_nothing("a");
  EXPECT_FALSE(records_.gives("a"));
  EXPECT_TRUE(records_.gives("b"));
  records_.gave("a");
  EXPECT_TRUE(records_.gives("a"));
}

}  // namespace
}  // namespace starling::collective
