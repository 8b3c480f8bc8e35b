// SPDX-License-Identifier: Apache-2.0
#include "core/sim/virtual_computation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace starling::sim {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

struct Completed {
  int piece;
  TimePoint at;
  friend bool operator==(const Completed&, const Completed&) = default;
};

// 40 pieces, of which later ones take less time; what completed when.
std::vector<Completed> run_pieces(unsigned threads) {
  ComputePool pool(threads);
  VirtualScheduler scheduler;
  SharedProcessors processors(scheduler, pool);
  int asked = 0;
  TimedComputation computation(processors, [&] { return Duration(1s) * (40 - asked++); });
  std::vector<Completed> completed;
  const auto alive = std::make_shared<int>(0);
  for (int piece = 0; piece < 40; ++piece) {
    compute<int>(
        computation, alive, [piece](unsigned) { return Result<int>(piece); },
        [&](Result<int> result) {
          completed.push_back({*result, scheduler.now()});
        });
  }
  while (scheduler.run_one()) {
  }
  return completed;
}

TEST(TimedComputation, CompletesInVirtualTimeWhateverTheThreads) {
  const auto one = run_pieces(1);
  ASSERT_EQ(one.size(), 40U);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(one[static_cast<std::size_t>(i)], (Completed{39 - i, TimePoint((i + 1) * 1s)}));
  }
  EXPECT_EQ(run_pieces(3), one);
}

TEST(TimedComputation, NothingCompletesForAProcessThatIsGone) {
  ComputePool pool(1);
  VirtualScheduler scheduler;
  SharedProcessors processors(scheduler, pool);
  std::vector<int> completed;
  auto first = std::make_unique<TimedComputation>(processors, [] { return Duration(1s); });
  TimedComputation second(processors, [] { return Duration(2s); });
  for (int piece = 0; piece < 20; ++piece) {
    first->submit([](unsigned) {}, [&completed] { completed.push_back(1); });
  }
  second.submit([](unsigned) {}, [&completed] { completed.push_back(2); });
  first.reset();
  while (scheduler.run_one()) {
  }
  EXPECT_THAT(completed, ElementsAre(2));
}

TEST(TimedComputation, DoesNotBeginWhatNobodyWaitsForAnyMore) {
  ComputePool pool(1);
  VirtualScheduler scheduler;
  SharedProcessors processors(scheduler, pool);
  std::atomic<int> begun = 0;
  {
    TimedComputation computation(processors, [] { return Duration(1s); });
    for (int piece = 0; piece < 20; ++piece) {
      computation.submit([&begun](unsigned) { ++begun; }, [] {});
    }
  }
  while (scheduler.run_one()) {
  }
  pool.for_each(1, [](std::size_t, unsigned) {});
  EXPECT_LT(begun, 20);
}

TEST(ImmediateComputation, ComputesAtOnceAndCompletesInALaterTurn) {
  VirtualScheduler scheduler;
  ImmediateComputation computation(scheduler);
  std::vector<std::string> seen;
  computation.submit([&](unsigned) { seen.emplace_back("work"); },
                     [&] { seen.emplace_back("done"); });
  EXPECT_THAT(seen, ElementsAre("work"));
  while (scheduler.run_one()) {
  }
  EXPECT_THAT(seen, ElementsAre("work", "done"));
}

TEST(Compute, DoesNotCompleteIntoTheSuccessorOfACrashedOwner) {
  VirtualScheduler scheduler;
  ImmediateComputation computation(scheduler);
  auto alive = std::make_shared<int>(0);
  bool completed = false;
  compute<void>(
      computation, alive, [](unsigned) { return Result<void>(); },
      [&](const Result<void>&) { completed = true; });
  alive = std::make_shared<int>(0);
  while (scheduler.run_one()) {
  }
  EXPECT_FALSE(completed);
}

}  // namespace
}  // namespace starling::sim
