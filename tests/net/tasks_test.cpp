// SPDX-License-Identifier: Apache-2.0
// Loop, tasks, deadlines, alarms and signals.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "core/net/alarm.h"
#include "core/net/deadline.h"
#include "core/net/rate_limiter.h"
#include "core/net/signals.h"
#include "core/net/task_group.h"

namespace starling::net {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

Async<void> sleep_long(EventLoop& loop, int& woken) {
  auto reached = co_await sleep_until(loop, loop.now() + hours(1));
  if (!reached) ++woken;
}

Async<void> note(int& count) {
  ++count;
  co_return;
}

Async<Result<int>> give(int value) { co_return value; }

Async<Result<int>> give_after(EventLoop& loop, Duration delay, int value) {
  auto reached = co_await sleep_until(loop, loop.now() + delay);
  if (!reached) co_return retry("cancelled", "given up");
  co_return value;
}

TEST(TaskGroup, RunsInALaterTurnAndAwaitsAll) {
  EventLoop loop;
  TaskGroup tasks(loop);
  int count = 0;
  for (int i = 0; i < 100; ++i) tasks.spawn(note(count));
  EXPECT_EQ(count, 0);
  EXPECT_EQ(tasks.size(), 100U);
  loop.run_task(tasks.wait());
  EXPECT_EQ(count, 100);
  EXPECT_EQ(tasks.size(), 0U);
}

TEST(TaskGroup, StopCancelsAwaitsAndRefuses) {
  EventLoop loop;
  TaskGroup tasks(loop);
  int woken = 0;
  for (int i = 0; i < 10; ++i) tasks.spawn(sleep_long(loop, woken));
  loop.run_task(tasks.stop());
  EXPECT_EQ(woken, 10);
  int count = 0;
  tasks.spawn(note(count));
  EXPECT_EQ(tasks.size(), 0U);
}

// From outside the loop: the tasks have ended by the turn in which they would hear of it.
TEST(TaskGroup, ACancellationMayComeAfterTheEnd) {
  EventLoop loop;
  TaskGroup tasks(loop);
  int count = 0;
  for (int i = 0; i < 10; ++i) tasks.spawn(note(count));
  tasks.cancel();
  loop.run_task(tasks.wait());
  EXPECT_EQ(count, 10);
  int woken = 0;
  tasks.spawn(sleep_long(loop, woken));
  tasks.cancel();
  loop.run_task(tasks.wait());
  EXPECT_EQ(woken, 1);
}

TEST(TaskGroup, ACancelledWaitLeavesTheTasksAlone) {
  EventLoop loop;
  TaskGroup outer(loop);
  TaskGroup inner(loop);
  int woken = 0;
  inner.spawn(sleep_long(loop, woken));
  outer.spawn(inner.wait());
  loop.run_task(outer.stop());
  EXPECT_EQ(woken, 0);
  EXPECT_EQ(inner.size(), 1U);
  loop.run_task(inner.stop());
  EXPECT_EQ(woken, 1);
}

TEST(TaskGroupDeathTest, MustBeEmptyAtItsEnd) {
  EXPECT_DEATH(
      {
        EventLoop loop;
        int woken = 0;
        TaskGroup tasks(loop);
        tasks.spawn(sleep_long(loop, woken));
      },
      "tasks.empty");
}

Async<void> throw_something() {
  throw std::runtime_error("left a task");
  co_return;
}

TEST(TaskGroupDeathTest, AnExceptionIsABug) {
  EventLoop loop;
  EXPECT_DEATH(loop.run_task(throw_something()), "left a task");
}

TEST(Deadline, PassesOnWhatIsInTime) {
  EventLoop loop;
  const auto value =
      run_task(loop, with_deadline(loop, loop.now() + seconds(60), "giving", give(7)));
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, 7);
  const auto slow = run_task(loop, with_deadline(loop, loop.now() + seconds(60), "giving",
                                                 give_after(loop, milliseconds(5), 8)));
  EXPECT_EQ(*slow, 8);
}

TEST(Deadline, CutsWhatIsNot) {
  EventLoop loop;
  const auto value = run_task(loop, with_deadline(loop, loop.now() + milliseconds(20), "giving",
                                                  give_after(loop, hours(1), 7)));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code(), "deadline");
  EXPECT_EQ(value.error().message(), "giving took longer than its deadline");
}

TEST(Deadline, ACancellationFromOutsideIsNoDeadline) {
  EventLoop loop;
  std::optional<Result<int>> result;
  TaskGroup tasks(loop);
  tasks.spawn(store_result(
      with_deadline(loop, loop.now() + hours(1), "giving", give_after(loop, hours(1), 7)), result));
  int turns = 0;
  for (int i = 0; i < 10; ++i) loop.run_task(note(turns));
  loop.run_task(tasks.stop());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->error().code(), "cancelled");
}

TEST(Deadline, NestedOnesKeepTheirOwn) {
  EventLoop loop;
  auto inner =
      with_deadline(loop, loop.now() + milliseconds(20), "inner", give_after(loop, hours(1), 7));
  const auto value =
      run_task(loop, with_deadline(loop, loop.now() + seconds(60), "outer", std::move(inner)));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().message(), "inner took longer than its deadline");
}

TEST(Deadline, AThousandAtOnceAreAllKept) {
  EventLoop loop;
  std::vector<std::optional<Result<int>>> results(1000);
  TaskGroup tasks(loop);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Duration delay = i % 2 == 0 ? Duration(milliseconds(1)) : Duration(hours(1));
    tasks.spawn(store_result(with_deadline(loop, loop.now() + milliseconds(200), "giving",
                                           give_after(loop, delay, static_cast<int>(i))),
                             results[i]));
  }
  loop.run_task(tasks.wait());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result<int>& result = *results[i];
    // On a busy machine also a short wait may come too late; then it says so.
    EXPECT_EQ(result ? "given" : result.error().code(),
              result && i % 2 == 0 ? "given" : "deadline");
    EXPECT_TRUE(!result || *result == static_cast<int>(i));
  }
}

Async<void> sleep_briefly(EventLoop& loop, Duration delay) {
  auto reached = co_await sleep_until(loop, loop.now() + delay);
  EXPECT_TRUE(reached);
}

TEST(Alarm, CallsOnceForTheLastSetting) {
  EventLoop loop;
  int calls = 0;
  Alarm alarm(loop, [&] { ++calls; });
  alarm.set(loop.now() + hours(1));
  alarm.set(loop.now());
  alarm.set(loop.now() - hours(1));  // the past is now
  loop.run_task(sleep_briefly(loop, milliseconds(5)));
  EXPECT_EQ(calls, 1);
}

TEST(Alarm, IsSilentOnceClearedOrGone) {
  EventLoop loop;
  int calls = 0;
  Alarm cleared(loop, [&] { ++calls; });
  cleared.set(loop.now());
  auto gone = std::make_unique<Alarm>(loop, [&] { ++calls; });
  gone->set(loop.now());
  // Both timers have expired when this runs, and their handlers wait behind it.
  loop.post([&] {
    cleared.clear();
    gone = nullptr;
  });
  loop.run_task(sleep_briefly(loop, milliseconds(5)));
  EXPECT_EQ(calls, 0);
}

TEST(Alarm, MaySetItselfAgain) {
  EventLoop loop;
  int calls = 0;
  std::unique_ptr<Alarm> alarm;
  alarm = std::make_unique<Alarm>(loop, [&] {
    if (++calls == 3) return loop.stop();
    alarm->set(loop.now());
  });
  alarm->set(loop.now());
  loop.run();
  EXPECT_EQ(calls, 3);
}

TEST(EventLoop, TakesWorkFromOtherThreads) {
  EventLoop loop;
  int done = 0;
  std::jthread worker([&] {
    for (int i = 0; i < 100; ++i) {
      loop.post([&] {
        if (++done == 100) loop.stop();
      });
    }
  });
  loop.run();
  EXPECT_EQ(done, 100);
}

TEST(Signals, BecomeEvents) {
  EventLoop loop;
  std::vector<Signal> seen;
  const SignalWatcher watcher(loop, [&](Signal signal) {
    seen.push_back(signal);
    if (seen.size() == 3) return loop.stop();
    ::raise(seen.size() == 1 ? SIGHUP : SIGINT);
  });
  ::raise(SIGTERM);
  loop.run();
  EXPECT_EQ(seen, (std::vector<Signal>{Signal::kTerminate, Signal::kHangUp, Signal::kInterrupt}));
}

TEST(RateLimiter, AllowsABurstAndThenTheRate) {
  RateLimiter limiter({.per_second = 10, .burst = 3});
  TimePoint now;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limiter.allow("10.0.0.1", now));
  EXPECT_FALSE(limiter.allow("10.0.0.1", now));
  EXPECT_TRUE(limiter.allow("10.0.0.2", now));
  int allowed = 0;
  for (int i = 0; i < 1000; ++i) {  // ten seconds, a hundred tries in each
    now += milliseconds(10);
    if (limiter.allow("10.0.0.1", now)) ++allowed;
  }
  EXPECT_GE(allowed, 99);
  EXPECT_LE(allowed, 101);
}

TEST(RateLimiter, CountsAWholeIpv6NetworkAsOne) {
  RateLimiter limiter({.per_second = 1, .burst = 1});
  EXPECT_TRUE(limiter.allow("2001:db8::1", TimePoint()));
  EXPECT_FALSE(limiter.allow("2001:db8::2", TimePoint()));
  EXPECT_TRUE(limiter.allow("2001:db8:0:1::1", TimePoint()));
}

TEST(RateLimiter, RemembersNoMoreThanItsLimit) {
  RateLimiter limiter({.per_second = 1, .burst = 2, .addresses_max = 100});
  TimePoint now;
  for (int i = 0; i < 1000; ++i) {
    limiter.allow("host-" + std::to_string(i), now);
    EXPECT_LE(limiter.addresses(), 100U);
  }
  now += seconds(10);  // all are full again, and so forgotten
  limiter.allow("another", now);
  EXPECT_EQ(limiter.addresses(), 1U);
}

}  // namespace
}  // namespace starling::net
