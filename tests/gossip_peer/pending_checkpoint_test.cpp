// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/pending_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class PendingCheckpoints : public ::testing::Test {
 protected:
  static peer::KeepCheckpoint of(const std::string& run, bool model_too = false) {
    return {std::make_shared<const Checkpoint>(Checkpoint{.run = run}), nullptr, model_too};
  }
  std::optional<peer::Say> fail(const peer::KeepCheckpoint& asked, bool is_last = false) {
    return pending.answered({asked.checkpoint, overloaded("disk-full", "no space left")}, now,
                            is_last);
  }
  std::optional<peer::Say> succeed(const peer::KeepCheckpoint& asked) {
    return pending.answered({asked.checkpoint, {}}, now, false);
  }

  PendingCheckpoint pending{30s};
  TimePoint now{};
};

TEST_F(PendingCheckpoints, OneThatIsWrittenLeavesNothing) {
  const auto asked = pending.keep(of("run"));
  EXPECT_FALSE(succeed(asked));
  EXPECT_FALSE(pending.retry_at());
  EXPECT_EQ(pending.problem(), "");
}

TEST_F(PendingCheckpoints, OneThatFailsIsWrittenAgainAndLoggedOnce) {
  const auto asked = pending.keep(of("run"));
  EXPECT_FALSE(pending.retry_at());
  auto line = fail(asked);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->level, LogLevel::kWarning);
  EXPECT_THAT(line->line, HasSubstr("no space left; tried again every 30s"));
  EXPECT_EQ(pending.problem(), line->line);
  EXPECT_EQ(pending.retry_at(), now + 30s);
  now += 30s;
  EXPECT_EQ(pending.retry().checkpoint, asked.checkpoint);
  EXPECT_FALSE(pending.retry_at()) << "its answer has not come";
  EXPECT_FALSE(fail(asked)) << "the same error again";
  EXPECT_EQ(pending.retry_at(), now + 30s);
  line = succeed(asked);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->level, LogLevel::kInfo);
  EXPECT_EQ(pending.problem(), "");
}

TEST_F(PendingCheckpoints, ALaterOneTakesItsPlace) {
  const auto first = pending.keep(of("run"));
  fail(first);
  const auto second = pending.keep(of("run"));
  EXPECT_FALSE(pending.retry_at());
  EXPECT_FALSE(fail(first)) << "nobody waits for it";
  EXPECT_FALSE(succeed(first));
  EXPECT_NE(pending.problem(), "") << "the second may fail too";
  EXPECT_TRUE(succeed(second));
}

TEST_F(PendingCheckpoints, AModelIsOwedUntilItIsWrittenOrItsRunIsAnother) {
  pending.keep(of("run", true));
  const auto again = pending.keep(of("run"));
  EXPECT_TRUE(again.model_too);
  EXPECT_FALSE(pending.keep(of("other")).model_too);
  pending.keep(of("run", true));
  succeed(pending.keep(of("run")));
  EXPECT_FALSE(pending.keep(of("run")).model_too);
}

TEST_F(PendingCheckpoints, TheLastOneIsNotWrittenAgain) {
  const auto line = fail(pending.keep(of("run")), true);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->level, LogLevel::kError);
  EXPECT_EQ(line->line, "the checkpoint is not kept: no space left");
  EXPECT_FALSE(pending.retry_at());
}

}  // namespace
}  // namespace starling::gossip
