// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/unreached_neighbours.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimePoint kStart{};
constexpr TimePoint kLater = kStart + UnreachedNeighbours::kStartMax;

Error cannot_dial(const std::string& line) { return not_connected("cannot-dial", line); }
Error shut_out(const std::string& line) { return not_authorised("shut-out", line); }

TEST(UnreachedNeighbours, AreNamedOnceTheyHadTheTimeToStart) {
  UnreachedNeighbours unreached;
  unreached.failed(1, cannot_dial("no route"), kStart);
  EXPECT_THAT(unreached.lines(kLater - 1ms), IsEmpty());
  EXPECT_EQ(unreached.problem_beside("", false), "") << "it may be starting";
  unreached.failed(1, cannot_dial("no answer"), kLater - 1ms);
  EXPECT_THAT(unreached.lines(kLater), ElementsAre("no answer")) << "the latest, since the first";
  EXPECT_THAT(unreached.lines(kLater + 1h), IsEmpty());
  EXPECT_EQ(unreached.problem_beside("", false), "no answer");
  unreached.failed(1, cannot_dial("refused"), kLater + 1h);
  EXPECT_EQ(unreached.problem_beside("", false), "refused");
}

TEST(UnreachedNeighbours, WhatAGoodbyeSaidOutlivesTheAlertsThatFollow) {
  UnreachedNeighbours unreached;
  unreached.failed(1, shut_out("not in the roster"), kStart);
  unreached.failed(1, shut_out("a certificate of another name"), kStart + 1s);
  EXPECT_THAT(unreached.lines(kLater), ElementsAre("not in the roster"));
}

TEST(UnreachedNeighbours, AreForgottenOnceThereIsALink) {
  UnreachedNeighbours unreached;
  for (const protocol::Member member : {1, 2}) {
    unreached.failed(member, cannot_dial("no answer"), kStart);
  }
  unreached.reached(1);
  EXPECT_THAT(unreached.lines(kLater), ElementsAre("no answer"));
  unreached.reached(2);
  EXPECT_EQ(unreached.problem_beside("", false), "");
  unreached.failed(1, cannot_dial("no answer"), kLater);
  unreached.forget_all();
  EXPECT_THAT(unreached.lines(kLater + 1h), IsEmpty());
}

TEST(UnreachedNeighbours, ALinkThatBreaksOtherwiseIsNotCounted) {
  UnreachedNeighbours unreached;
  unreached.failed(1, not_connected("goodbye", "it closes"), kStart);
  EXPECT_THAT(unreached.lines(kLater), IsEmpty());
}

TEST(UnreachedNeighbours, HideAnotherProblemOnlyFromAPeerThatIsShutOutByAll) {
  UnreachedNeighbours unreached;
  unreached.failed(1, shut_out("not in the roster"), kStart);
  unreached.failed(2, cannot_dial("no answer"), kStart);
  unreached.lines(kLater);
  EXPECT_EQ(unreached.problem_beside("nobody was heard", true), "not in the roster");
  EXPECT_EQ(unreached.problem_beside("the disk fails", false), "the disk fails");
}

}  // namespace
}  // namespace starling::gossip
