// SPDX-License-Identifier: Apache-2.0
#include "core/sim/population.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace starling::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Population make(const NodeOptions& options, std::uint32_t nodes, std::uint64_t seed = 1) {
  auto population = Population::make(options, nodes, seed);
  EXPECT_TRUE(population) << population.error().message();
  return std::move(*population);
}

TEST(Population, EverybodyIsThereAndAlikeByDefault) {
  const Population population = make({.step_time = milliseconds(20)}, 4);
  EXPECT_FALSE(population.churns());
  EXPECT_DOUBLE_EQ(population.step_seconds(3, 7), 0.02);
  EXPECT_EQ(population.up_from(2, 5), 5);
  EXPECT_EQ(population.up_until(2, 5), kNever);
}

// Which nodes are slow is drawn; how many is not.
TEST(Population, AFractionStraggles) {
  const auto slow_nodes = [](double fraction, std::uint32_t nodes, std::uint64_t seed) {
    const Population population = make({.stragglers = fraction, .slowdown = 5}, nodes, seed);
    std::vector<std::uint32_t> slow;
    for (std::uint32_t node = 0; node < nodes; ++node) {
      const double ratio = population.step_seconds(node, 0) / 0.01;
      EXPECT_TRUE(std::abs(ratio - 1) < 1e-6 || std::abs(ratio - 5) < 1e-5);
      if (ratio > 2) slow.push_back(node);
    }
    return slow;
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(slow_nodes(0.25, 16, seed).size(), 4U) << seed;
    EXPECT_EQ(slow_nodes(0.1, 16, seed).size(), 2U) << seed;
  }
  EXPECT_NE(slow_nodes(0.25, 16, 1), slow_nodes(0.25, 16, 2));
  EXPECT_EQ(slow_nodes(1, 16, 1).size(), 16U);
  EXPECT_EQ(slow_nodes(0, 16, 1).size(), 0U);
}

TEST(Population, StepsVaryByNodeAndNumberAlone) {
  const NodeOptions options{.step_jitter = "uniform:0.5,1.5"};
  const Population one = make(options, 3);
  const Population same = make(options, 3);
  EXPECT_NE(one.step_seconds(0, 0), one.step_seconds(0, 1));
  EXPECT_NE(one.step_seconds(0, 0), one.step_seconds(1, 0));
  EXPECT_EQ(one.step_seconds(2, 5), same.step_seconds(2, 5));
}

// Up for 30 s and down for 10 s on average: there three quarters of the time.
TEST(Population, CrashesAndReturnsAsOftenAsItSays) {
  constexpr std::uint32_t kNodes = 500;
  const Population population =
      make({.crash_every = seconds(30), .return_after = seconds(10)}, kNodes);
  double up = 0;
  double all = 0;
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    double time = 0;
    while (time < 2000) {
      const double gone = population.up_until(node, time);
      const double back = population.up_from(node, gone);
      ASSERT_GT(gone, time);
      ASSERT_GT(back, gone);
      EXPECT_EQ(population.up_until(node, back), population.up_until(node, back + 1e-9));
      up += gone - time;
      all += back - time;
      time = back;
    }
  }
  EXPECT_NEAR(up / all, 0.75, 0.01);
}

TEST(Population, JoinsAndLeavesForEver) {
  constexpr std::uint32_t kNodes = 1000;
  const Population population =
      make({.join_within = seconds(100), .leave_after = seconds(50)}, kNodes);
  double joined = 0;
  double stayed = 0;
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    const double from = population.up_from(node, 0);
    const double until = population.up_until(node, from);
    joined += from;
    stayed += until - from;
    EXPECT_EQ(population.up_from(node, until), kNever);
    EXPECT_EQ(population.up_from(node, until + 1e6), kNever);
  }
  EXPECT_NEAR(joined / kNodes, 50, 4 * 100 / std::sqrt(12.0 * kNodes));
  EXPECT_NEAR(stayed / kNodes, 50, 4 * 50 / std::sqrt(kNodes));
}

TEST(Population, AnswersDoNotDependOnTheOrderOfQuestions) {
  const NodeOptions options{.crash_every = seconds(5), .return_after = seconds(5)};
  const Population forward = make(options, 1);
  const Population backward = make(options, 1);
  const double late = backward.up_from(0, 1000);
  for (int time = 0; time < 1000; ++time) static_cast<void>(forward.up_from(0, time));
  EXPECT_EQ(forward.up_from(0, 1000), late);
  EXPECT_EQ(forward.up_from(0, 3), backward.up_from(0, 3));
}

}  // namespace
}  // namespace starling::sim
