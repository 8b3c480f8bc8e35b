// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/ended_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EndedSessions : public ::testing::Test {
 protected:
  EndedSessions() {
    roster.run = "lab";
    for (const char* const name : {"ann", "bob", "cem", "dee"}) {
      roster.members.push_back({.name = name});
    }
    ended = {.run_id = roster.run_identity(),
             .run_name = "lab",
             .progress = {.exchange = 7},
             .reachable = {{{"ann", false}, {"bob", false}, {"cem", true}}}};
  }

  identity::Roster roster;
  EndedSession ended;
};

TEST_F(EndedSessions, WhoWasNotReachableOrIsNewIsAbsentInTheNext) {
  EXPECT_THAT(ended.absent(roster, "ann"), ElementsAre(1, 3));
}

TEST_F(EndedSessions, NobodyIsAbsentWhereTheRunBegins) {
  ended.progress.exchange = 0;
  EXPECT_THAT(ended.absent(roster, "ann"), IsEmpty());
}

TEST_F(EndedSessions, NobodyIsAbsentWhereAllMayComeBack) {
  ended.reachable.reset();
  EXPECT_THAT(ended.absent(roster, "ann"), IsEmpty());
}

TEST_F(EndedSessions, NobodyIsAbsentInAnotherRun) {
  roster.begin_run({});
  EXPECT_FALSE(ended.is_of_run(roster));
  EXPECT_THAT(ended.absent(roster, "ann"), IsEmpty());
  ended.run_id = roster.run_identity();
  EXPECT_TRUE(ended.is_of_run(roster));
  EXPECT_THAT(ended.absent(roster, "ann"), ElementsAre(1, 3));
}

}  // namespace
}  // namespace starling::gossip
