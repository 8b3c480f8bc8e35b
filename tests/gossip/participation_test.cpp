// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/participation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using ::testing::Optional;

constexpr TimePoint kBegun{1000s};

// Member 1 of four; member 0 gathers its first attempt.
class Part : public ::testing::Test {
 protected:
  Part() {
    part_.promised = 1;
    part_.promised_at = kBegun;
  }

  Patience patience_{.answer = 2s, .piece = 4s, .start = 0s, .max = 60s};
  MemberLiveness liveness_{4, 1};
  Participation part_{{.at = {3, 3}, .input = share({1, 2})}, 1, 4, kBegun};
};

TEST_F(Part, WaitsForItsGathererThenForWhoHoldsTheMean) {
  EXPECT_EQ(part_.waiting_for(), 0);
  EXPECT_TRUE(part_.waits_for_list());
  EXPECT_THAT(part_.gives_up_at(patience_, liveness_), Optional(kBegun + 2s));
  part_.fetch = reduce::Standing{.holder = 3};
  EXPECT_EQ(part_.waiting_for(), 3);
  EXPECT_THAT(part_.gives_up_at(patience_, liveness_), Optional(kBegun + 4s));
  part_.leave_attempt();
  part_.promised = 2;  // our own
  EXPECT_EQ(part_.waiting_for(), std::nullopt);
  EXPECT_EQ(part_.gives_up_at(patience_, liveness_), std::nullopt);
}

TEST_F(Part, GivesAMemberThatMayBeStartingMoreTime) {
  patience_.start = 10s;
  EXPECT_THAT(part_.gives_up_at(patience_, liveness_), Optional(kBegun + 10s));
  liveness_.heard(0, kBegun);
  EXPECT_THAT(part_.gives_up_at(patience_, liveness_), Optional(kBegun + 2s));
  liveness_.link_down(0, kBegun);
  EXPECT_THAT(part_.gives_up_at(patience_, liveness_), Optional(kBegun + MemberLiveness::kRelink));
}

// A heartbeat ends no half.
TEST_F(Part, AsksTheOthersAfterHalfAWaitAndJudgesThemAfterTheOther) {
  part_.wait(kBegun + 1s);
  EXPECT_EQ(part_.probes_at(patience_), kBegun + 2s);
  part_.probed_at = kBegun + 2s;
  EXPECT_EQ(part_.probes_at(patience_), kBegun + 4s);
}

TEST_F(Part, BlamesWhoItHasWaitedForHalfAsLongAsItWould) {
  EXPECT_EQ(part_.blame_at(patience_, liveness_, kBegun + 900ms), std::nullopt);
  EXPECT_THAT(part_.blame_at(patience_, liveness_, kBegun + 1s), Optional(Blame{.member = 0}));
  liveness_.call_silent(0, kBegun);
  EXPECT_THAT(part_.blame_at(patience_, liveness_, kBegun), Optional(Blame{.member = 0}));
  part_.blame = Blame{.member = 2, .wrong = true};
  EXPECT_EQ(part_.blame_at(patience_, liveness_, kBegun + 1s), part_.blame);
}

// On a ring whoever waited for the first piece waits as long for a later one, of one that waited
// itself.
TEST_F(Part, SaysForWhosePieceItWaitedFirstOfTheLongest) {
  part_.note_wait(1, 2, kBegun + 10ms);
  part_.note_wait(0, 4, kBegun + 30ms);
  part_.note_wait(2, 5, kBegun + 20ms);
  part_.note_wait(2, 6, kBegun + 50ms);
  EXPECT_EQ(part_.done().waited, (Waited{.of = 0, .piece = 5, .milliseconds = 30}));
}

TEST(Patience, DoublesFromTheThirdFailedAttemptOn) {
  Patience patience{.answer = 2s, .piece = 4s, .start = 0s, .max = 60s, .failed = 2};
  EXPECT_EQ(patience.for_piece(), 4s);
  patience.failed = 4;
  EXPECT_EQ(patience.for_piece(), 16s);
  patience.failed = 1000;
  EXPECT_EQ(patience.for_piece(), 60s);
  EXPECT_EQ(patience.stretched(70s), 70s);
}

TEST(MeanSearch, AsksEachOnceAndFirstWhoSaysThatItHasTheMean) {
  MeanSearch search({.holder = 3}, {3, 0, 2}, kBegun);
  EXPECT_EQ(search.asked(), 3);
  EXPECT_TRUE(search.add(1, 4));
  EXPECT_FALSE(search.add(1, 4));  // too many are known
  EXPECT_FALSE(search.was_asked(1));
  ASSERT_TRUE(search.ask_next({0}, kBegun + 1s));
  EXPECT_EQ(search.asked(), 1);
  EXPECT_EQ(search.asked_at(), kBegun + 1s);
  ASSERT_TRUE(search.ask_next({0}, kBegun + 2s));
  EXPECT_EQ(search.asked(), 2);
  EXPECT_TRUE(search.was_asked(3));
  EXPECT_FALSE(search.ask_next({0}, kBegun + 3s));
}

}  // namespace
}  // namespace starling::collective
