// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/round_executor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace starling::coordinator {
namespace {

using Names = std::vector<std::string>;

// Does nothing by itself: each piece of work ends when the test says so.
class HeldComputation final : public Computation {
 public:
  void submit(Work work, std::function<void()> done) override {
    begun_.push_back([work = std::move(work), done = std::move(done)] {
      work(0);
      done();
    });
  }

  std::size_t begun() const { return begun_.size(); }
  void end(std::size_t i) {
    const auto piece = std::move(begun_[i]);
    begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(i));
    piece();
  }

 private:
  std::vector<std::function<void()>> begun_;
};

TEST(RoundExecutor, KeepsTheOrderOfARunAndLetsNoRunWaitForAnother) {
  HeldComputation computation;
  ComputePool evaluators(1);
  RoundExecutor executor(computation, evaluators);
  Names ended;
  const auto drop = [&](std::uint64_t run, const std::string& name) {
    executor.drop(RunId(run), [&ended, name] { ended.push_back(name); });
  };
  drop(1, "1a");
  drop(1, "1b");
  drop(2, "2a");
  drop(2, "2b");
  ASSERT_EQ(computation.begun(), 2U);  // the first of each run
  computation.end(1);
  computation.end(1);
  EXPECT_EQ(ended, (Names{"2a", "2b"}));
  ASSERT_EQ(computation.begun(), 1U);
  EXPECT_TRUE(executor.busy());
  computation.end(0);
  ASSERT_EQ(computation.begun(), 1U);
  drop(1, "1c");
  computation.end(0);
  computation.end(0);
  EXPECT_EQ(ended, (Names{"2a", "2b", "1a", "1b", "1c"}));
  EXPECT_FALSE(executor.busy());
}

TEST(RoundExecutor, WhatEndsAfterItCompletesNothing) {
  HeldComputation computation;
  ComputePool evaluators(1);
  bool ended = false;
  {
    RoundExecutor executor(computation, evaluators);
    executor.drop(RunId(1), [&ended] { ended = true; });
    executor.drop(RunId(1), [&ended] { ended = true; });
  }
  computation.end(0);
  EXPECT_EQ(computation.begun(), 0U);
  EXPECT_FALSE(ended);
}

}  // namespace
}  // namespace starling::coordinator
