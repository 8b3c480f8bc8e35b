// SPDX-License-Identifier: Apache-2.0
#include "core/sim/virtual_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace starling::sim {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

class VirtualSchedulerTest : public ::testing::Test {
 protected:
  void note(const std::string& what) {
    seen.push_back(what + "@" + format_duration(scheduler.now() - TimePoint{}));
  }
  void run() {
    while (scheduler.run_one()) {
    }
  }

  VirtualScheduler scheduler;
  std::vector<std::string> seen;
};

TEST_F(VirtualSchedulerTest, RunsPostedWorkInLaterTurnsInOrder) {
  scheduler.post([this] {
    scheduler.post([this] { note("third"); });
    note("first");
  });
  scheduler.post([this] { note("second"); });
  EXPECT_THAT(seen, ElementsAre());
  run();
  EXPECT_THAT(seen, ElementsAre("first@0s", "second@0s", "third@0s"));
}

TEST_F(VirtualSchedulerTest, ATimerGoesOffOnceAtItsLatestSetting) {
  const auto timer = scheduler.make_timer([this] { note("timer"); });
  timer->set(TimePoint(5s));
  timer->set(TimePoint(9s));  // later: the event at 5 s looks again
  scheduler.schedule(TimePoint(1s), [&] { timer->set(TimePoint(7s)); });
  scheduler.schedule(TimePoint(2s), [&] { timer->set(TimePoint(3s)); });  // earlier
  run();
  EXPECT_THAT(seen, ElementsAre("timer@3s"));
}

TEST_F(VirtualSchedulerTest, ATimerMayBeSetAgainInItsCallbackAndInThePast) {
  std::unique_ptr<Timer> timer;
  timer = scheduler.make_timer([&] {
    note("timer");
    if (seen.size() < 3) timer->set(TimePoint(seen.size() == 1 ? 4s : 1s));
  });
  timer->set(TimePoint(2s));
  run();
  EXPECT_THAT(seen, ElementsAre("timer@2s", "timer@4s", "timer@4s"));
}

TEST_F(VirtualSchedulerTest, NothingComesOfATimerThatIsClearedOrGone) {
  const auto cleared = scheduler.make_timer([this] { note("cleared"); });
  auto gone = scheduler.make_timer([this] { note("gone"); });
  cleared->set(TimePoint(2s));
  gone->set(TimePoint(2s));
  scheduler.schedule(TimePoint(1s), [&] {
    cleared->clear();
    gone.reset();
  });
  run();
  EXPECT_THAT(seen, ElementsAre());
  cleared->set(TimePoint(3s));
  run();
  EXPECT_THAT(seen, ElementsAre("cleared@3s"));
}

TEST_F(VirtualSchedulerTest, ManySettingsCostFewEvents) {
  const auto timer = scheduler.make_timer([] {});
  for (int i = 1; i <= 1000; ++i) timer->set(TimePoint(std::chrono::seconds(i)));
  int events = 0;
  while (scheduler.run_one()) ++events;
  EXPECT_EQ(events, 2);
}

}  // namespace
}  // namespace starling::sim
