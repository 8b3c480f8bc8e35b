// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/era_plan.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using protocol::Eras;
using protocol::Exchange;

constexpr std::uint64_t kSpread = 2;
constexpr Exchange kGrid = 8 * (kSpread + 1);

class EraPlanTest : public ::testing::Test {
 protected:
  // Asks again and again, from this exchange on, until so many have begun; where the last one did.
  Exchange begin_many(std::size_t beginnings, Exchange from) {
    Exchange at = from;
    while (beginnings > 0) {
      if (!plan_.is_planned()) plan_.plan(at);
      if (plan_.begin(++at)) --beginnings;
    }
    return at;
  }

  EraPlan plan_{true, kSpread};
};

TEST_F(EraPlanTest, AllHaveHeardOfABeginningWhenItComes) {
  plan_.plan(10);
  EXPECT_EQ(plan_.eras(), (Eras{0, 10 + 1 + kSpread}));
  EXPECT_FALSE(plan_.begin(12));
  EXPECT_TRUE(plan_.begin(13));
  EXPECT_EQ(plan_.eras(), (Eras{13, 0}));
  EXPECT_TRUE(plan_.is_shared(13));
  EXPECT_FALSE(plan_.is_shared(0));
}

TEST_F(EraPlanTest, WhoComesTooLateBeginsByItselfAndAsksForAnother) {
  plan_.plan(10);
  EXPECT_TRUE(plan_.begin(20));
  EXPECT_EQ(plan_.eras(), (Eras{20, 20 + 1 + kSpread}));
}

TEST_F(EraPlanTest, OfTwoThatArePlannedAllTakeTheEarlier) {
  plan_.plan(10);
  EXPECT_FALSE(plan_.hear(1, {0, 12}, 10));
  EXPECT_EQ(plan_.eras().next, 12U);
  EXPECT_FALSE(plan_.hear(1, {0, 18}, 10));
  EXPECT_EQ(plan_.eras().next, 12U);
}

TEST_F(EraPlanTest, WhatCannotBeHasNoEffect) {
  plan_.hear(1, {0, 1 << 30}, 10);   // further than anybody plans
  plan_.hear(1, {1U << 30, 0}, 10);  // an era that is still to come
  plan_.hear(1, {EraPlan::kAlone, 0}, 10);
  EXPECT_FALSE(plan_.is_planned());
}

TEST_F(EraPlanTest, WhoHearsOfABeginningThatItMissedAsksForAnother) {
  plan_.hear(1, {11, 0}, 10);
  EXPECT_EQ(plan_.eras(), (Eras{0, 10 + 1 + kSpread}));
}

TEST_F(EraPlanTest, NothingIsSharedWithWhoIsAlone) {
  plan_.share_nothing(10);
  EXPECT_EQ(plan_.eras(), (Eras{EraPlan::kAlone, 10 + 1 + kSpread}));
  EXPECT_FALSE(plan_.is_shared(EraPlan::kAlone)) << "nor with another that is alone";
}

TEST_F(EraPlanTest, AfterSomeTheNextAreOnTheGridAndWhoCausesThemIsToldOnce) {
  const Exchange at = begin_many(EraPlan::kFree, 100);
  const auto too_often = plan_.plan(at, 3);
  ASSERT_TRUE(too_often);
  EXPECT_EQ(too_often->asker, 3U);
  EXPECT_EQ(too_often->since, 100 + 1 + kSpread);
  EXPECT_EQ(too_often->next % kGrid, 0U);
  EXPECT_EQ(plan_.eras().next, too_often->next);
  EXPECT_FALSE(plan_.plan(at, 3));
  EXPECT_TRUE(plan_.plan(at, 4)) << "another";
}

TEST_F(EraPlanTest, WhoAsksWhereAllMayBeginIsToldToo) {
  const Exchange at = begin_many(EraPlan::kFree, 100);
  const Exchange on_grid = (at / kGrid + 1) * kGrid;
  const auto too_often = plan_.hear(3, {0, static_cast<std::uint32_t>(on_grid)}, at);
  ASSERT_TRUE(too_often);
  EXPECT_EQ(too_often->asker, 3U);
  EXPECT_EQ(plan_.eras().next, on_grid);
}

TEST_F(EraPlanTest, OffTheGridNobodyIsFollowedThen) {
  const Exchange at = begin_many(EraPlan::kFree, 100);
  const Exchange off_grid = at + 1 + (at + 1) % kGrid % 2;
  ASSERT_NE(off_grid % kGrid, 0U);
  plan_.hear(3, {0, static_cast<std::uint32_t>(off_grid)}, at);
  EXPECT_EQ(plan_.eras().next % kGrid, 0U);
  EXPECT_GT(plan_.eras().next, at);
}

TEST_F(EraPlanTest, WhatWasLongAgoIsForgotten) {
  const Exchange at = begin_many(EraPlan::kFree, 100) + plan_.span();
  EXPECT_FALSE(plan_.plan(at, 3));
  EXPECT_EQ(plan_.eras().next, at + 1 + kSpread);
}

TEST_F(EraPlanTest, WhoGoesFurtherBackHasNotSeenWhatComesAfter) {
  begin_many(EraPlan::kFree, 100);
  plan_.go_to(50);
  EXPECT_EQ(plan_.eras(), (Eras{EraPlan::kAlone, 50 + 1 + kSpread}));
}

TEST(EraPlan, AnAlgorithmThatSharesNothingHasNone) {
  EraPlan plan(false, kSpread);
  EXPECT_FALSE(plan.plan(10, 1));
  EXPECT_FALSE(plan.hear(1, {11, 12}, 10));
  plan.share_nothing(10);
  EXPECT_EQ(plan.eras(), Eras{});
}

}  // namespace
}  // namespace starling::gossip
