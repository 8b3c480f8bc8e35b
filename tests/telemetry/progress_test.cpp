// SPDX-License-Identifier: Apache-2.0
#include "core/telemetry/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/base/word_wrap.h"

namespace starling::telemetry {
namespace {

using namespace std::chrono_literals;

class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  WallTime wall_now() const override { return {}; }
  void advance(Duration duration) { now_ += duration; }

 private:
  TimePoint now_{};
};

class ProgressTest : public ::testing::Test {
 protected:
  // What was written since the last call.
  std::string written() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }

  ManualClock clock_;
  std::ostringstream out_;
  Terminal terminal_{.interactive = true, .colour = false, .unicode = false, .columns = 80};
  Terminal pipe_{};
};

TEST_F(ProgressTest, ABarIsRedrawnInPlace) {
  Progress progress(out_, clock_, terminal_, 20);
  clock_.advance(2s);
  progress.update(5, "accuracy 0.84");
  EXPECT_EQ(written(),
            "\r\x1b[K[#####-----------------] 5/20 rounds  2.0 s  about 6.0 s left  accuracy 0.84");
  clock_.advance(50ms);
  progress.update(6);
  EXPECT_EQ(written(), "") << "too soon";
  clock_.advance(50ms);
  progress.update(7);
  EXPECT_THAT(written(), ::testing::StartsWith("\r\x1b[K[#######---"));
  progress.update(20);
  EXPECT_EQ(written(), "\r\x1b[K[######################] 20/20 rounds  2.1 s") << "always the end";
}

TEST_F(ProgressTest, PartsOfAUnitMoveTheBarButAreNotCounted) {
  Progress progress(out_, clock_, terminal_, 3000, {.unit = "runs", .per_unit = 1000});
  clock_.advance(2s);
  progress.update(1500, "seed=2");
  EXPECT_EQ(written(),
            "\r\x1b[K[###########-----------] 1/3 runs  2.0 s  about 2.0 s left  seed=2");
}

TEST_F(ProgressTest, LinesStandAboveTheBar) {
  {
    Progress progress(out_, clock_, terminal_, 2);
    progress.print("first");
    EXPECT_EQ(written(), "first\n");
    progress.update(1);
    const std::string drawn = written();
    progress.print("second");
    EXPECT_EQ(written(), "\r\x1b[Ksecond\n" + drawn);
  }
  EXPECT_EQ(written(), "\r\x1b[K") << "the bar goes";
}

TEST_F(ProgressTest, NeverWiderThanTheTerminal) {
  for (int columns : {20, 47, 48, 49, 60, 80, 200}) {
    terminal_.columns = columns;
    terminal_.unicode = true;
    Progress progress(out_, clock_, terminal_, 1000);
    progress.update(1, std::string(300, 'x'));
    const std::string drawn = written();
    const std::string bare = drawn.substr(drawn.rfind("\x1b[K") + 3);
    EXPECT_LT(columns_of(bare), static_cast<std::size_t>(columns));
  }
}

TEST_F(ProgressTest, NoNumberIsCutWhereTheTerminalEnds) {
  terminal_.columns = 80;
  Progress progress(out_, clock_, terminal_, 1000);
  progress.update(1, "35446 node-steps/s");
  EXPECT_THAT(written(), ::testing::EndsWith("] 1/1000 rounds  0.0 s  about 0.0 s left"));
}

TEST_F(ProgressTest, ColourOnlyWhereItIsWanted) {
  terminal_.colour = true;
  Progress progress(out_, clock_, terminal_, 2);
  progress.update(1);
  EXPECT_THAT(written(), ::testing::HasSubstr("\x1b[32m[###########-----------]\x1b[0m 1/2"));
}

TEST_F(ProgressTest, WithoutATerminalItIsALineNowAndThen) {
  {
    Progress progress(out_, clock_, pipe_, 100);
    progress.update(1);
    clock_.advance(9s);
    progress.update(2);
    EXPECT_EQ(written(), "");
    clock_.advance(1s);
    progress.update(3, "loss 0.5");
    EXPECT_EQ(written(), "3/100 rounds  10 s  about 5 min 23 s left  loss 0.5\n");
    progress.update(100);
    progress.print("done");
    EXPECT_EQ(written(), "done\n");
  }
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressTest, WithoutATotalThereIsNoBar) {
  Progress progress(out_, clock_, terminal_, 0, {.unit = "clients"});
  progress.update(3);
  EXPECT_EQ(written(), "\r\x1b[K3 clients  0.0 s");
}

TEST(Bar, ShowsTheShare) {
  EXPECT_EQ(bar(0, 6, false), "[----]");
  EXPECT_EQ(bar(0.5, 6, false), "[##--]");
  EXPECT_EQ(bar(7, 6, false), "[####]");
  EXPECT_EQ(bar(0.625, 4, true), "▕█▎▏");
  EXPECT_EQ(bar(1, 4, true), "▕██▏");
}

TEST(FormatElapsed, ReadsAsPeopleSayIt) {
  EXPECT_EQ(format_elapsed(0ms), "0.0 s");
  EXPECT_EQ(format_elapsed(9949ms), "9.9 s");
  EXPECT_EQ(format_elapsed(9951ms), "10 s");
  EXPECT_EQ(format_elapsed(59'600ms), "1 min 0 s");
  EXPECT_EQ(format_elapsed(3599s), "59 min 59 s");
  EXPECT_EQ(format_elapsed(7500s), "2 h 5 min");
}

}  // namespace
}  // namespace starling::telemetry
