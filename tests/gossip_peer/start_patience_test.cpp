// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/start_patience.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;

TEST(StartPatience, EndsWithTheStartOfTheRunNotOfTheSession) {
  StartPatience patience;
  const TimePoint start{};
  EXPECT_EQ(patience.begin_session("run", 2s, 60s, start), 60s);
  EXPECT_EQ(patience.begin_session("run", 2s, 60s, start + 40s), 20s);
  EXPECT_EQ(patience.begin_session("run", 2s, 60s, start + 10min), 2s);
  EXPECT_EQ(patience.begin_session("other", 2s, 60s, start + 10min), 60s);
  patience.restart();
  EXPECT_EQ(patience.begin_session("other", 2s, 60s, start + 20min), 60s);
}

TEST(StartPatience, LaterOnIsTwoLocalPhasesMoreThanTheLeast) {
  StartPatience patience;
  const TimePoint start{};
  patience.begin_session("run", 2s, 60s, start);
  patience.computed(7s);
  patience.computed(3s);
  EXPECT_EQ(patience.begin_session("run", 2s, 60s, start + 10min), 16s);
  patience.computed(5min);
  EXPECT_EQ(patience.begin_session("run", 2s, 60s, start + 10min), 60s) << "never longer";
}

}  // namespace
}  // namespace starling::gossip
