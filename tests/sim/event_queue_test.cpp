// SPDX-License-Identifier: Apache-2.0
#include "core/sim/event_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace starling::sim {
namespace {

using namespace std::chrono_literals;

TEST(EventQueue, GivesTheEarliestAndOfEqualsTheFirstScheduled) {
  EventQueue<std::string> queue;
  queue.schedule(TimePoint(2s), "later");
  queue.schedule(TimePoint(1s), "first");
  queue.schedule(TimePoint(1s), "second");
  EXPECT_EQ(queue.pop(), "first");
  EXPECT_EQ(queue.now(), TimePoint(1s));
  EXPECT_EQ(queue.pop(), "second");
  EXPECT_EQ(queue.pop(), "later");
  EXPECT_EQ(queue.now(), TimePoint(2s));
  EXPECT_FALSE(queue.pop());
}

TEST(EventQueue, TimeNeverGoesBack) {
  EventQueue<int> queue;
  queue.schedule(TimePoint(5s), 1);
  queue.pop();
  queue.schedule(TimePoint(1s), 2);  // in the past: it happens now
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.now(), TimePoint(5s));
}

}  // namespace
}  // namespace starling::sim
