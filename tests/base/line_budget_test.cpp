// SPDX-License-Identifier: Apache-2.0
#include "core/base/line_budget.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(LineBudget, AFewLinesAMinuteAndACountOfTheRest) {
  LineBudget budget;
  TimePoint now{};
  int said = 0;
  for (int i = 0; i < 100; ++i) {
    said += budget.spend(now) ? 1 : 0;
    now += std::chrono::milliseconds(100);
  }
  EXPECT_EQ(said, LineBudget::kLines);
  EXPECT_EQ(budget.take_unsaid(), 95U);
  EXPECT_EQ(budget.take_unsaid(), 0U);
  now += LineBudget::kPeriod;
  EXPECT_TRUE(budget.spend(now));
}

TEST(LineBudget, WhatIsRareAlwaysGetsItsLine) {
  LineBudget budget;
  TimePoint now{};
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(budget.spend(now));
    now += std::chrono::seconds(15);
  }
}

}  // namespace
}  // namespace starling
