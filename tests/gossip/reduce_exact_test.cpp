// SPDX-License-Identifier: Apache-2.0
// What an undisturbed all-reduce gives: the exact mean, the same bits everywhere, and exactly the
// bytes of the closed form.
#include <gtest/gtest.h>

#include <bit>

#include "tests/gossip/one_reduction.h"
#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using testing::ReduceNetwork;
using testing::World;
using Choice = ShapeRule::Choice;

void expect_exact(std::size_t members, std::size_t floats, Choice choice, std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "P " << members << " d " << floats << " choice "
                                    << static_cast<int>(choice) << " seed " << seed);
  World world{.seed = seed, .members = members, .floats = floats, .exchanges = 2};
  world.options.shape.choice = choice;
  world.options.stragglers.min = std::chrono::seconds(2);  // nobody is one
  ReduceNetwork network(world);
  ASSERT_EQ(network.run(), "");
  EXPECT_EQ(network.wrong_results(), "");
  EXPECT_EQ(network.disagreement(), "");
  const Shape shape = choose_shape(world.options.shape, members, floats);
  std::uint64_t total = 0;
  for (Member m = 0; m < members; ++m) {
    ASSERT_EQ(network.finished(m).size(), 2U);
    EXPECT_EQ(network.finished(m)[0].members.size(), members);
    EXPECT_EQ(network.floats_sent(m), 2 * floats_sent(shape, m, members, floats));
    total += network.floats_sent(m);
  }
  EXPECT_EQ(total, 2 * 2 * (members - 1) * floats);
  EXPECT_TRUE(network.said().empty());
}

TEST(AllReduceExact, EveryNumberOfMembersAndSize) {
  for (Choice choice : {Choice::kRing, Choice::kTree, Choice::kFaster}) {
    for (std::size_t members = 1; members <= 9; ++members) {
      for (std::size_t floats : {0U, 1U, 2U, 5U, 8U, 9U, 10U, 64U, 1001U}) {
        expect_exact(members, floats, choice, members * 100 + floats);
      }
    }
  }
}

TEST(AllReduceExact, AMillionAndThreeFloats) {
  for (std::size_t members : {2U, 4U, 7U}) {
    expect_exact(members, 1'000'003, Choice::kRing, members);
  }
  expect_exact(5, 1'000'003, Choice::kTree, 5);
}

TEST(AllReduceExact, BytesByHandForSix) {
  // 13 floats in 6 segments: 2 2 2 2 2 3.
  EXPECT_EQ(floats_sent(Shape::kRing, 0, 6, 13), 26U - 2 - 2);
  EXPECT_EQ(floats_sent(Shape::kRing, 4, 6, 13), 26U - 3 - 2);
  EXPECT_EQ(floats_sent(Shape::kRing, 3, 6, 13), 26U - 2 - 3);
  // Children of 0: 1 2 4; of 2: 3; of 4: 5.
  const std::uint64_t sends[] = {3, 1, 2, 1, 2, 1};
  for (std::uint64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(floats_sent(Shape::kTree, i, 6, 13), 13 * sends[i]);
  }
}

TEST(AllReduceExact, TheTreeIsForSmallVectorsAmongFourOrMore) {
  const ShapeRule rule;
  EXPECT_EQ(choose_shape(rule, 2, 1), Shape::kRing);
  EXPECT_EQ(choose_shape(rule, 3, 1), Shape::kRing);
  EXPECT_EQ(choose_shape(rule, 4, 13'000), Shape::kTree);  // 52,000 < 65,536 / 1.25
  EXPECT_EQ(choose_shape(rule, 4, 13'200), Shape::kRing);  // 52,800
  EXPECT_EQ(choose_shape(rule, 8, 30'000), Shape::kTree);  // 120,000 < 65,536 x 4 / 2.125
  EXPECT_EQ(choose_shape(rule, 8, 31'000), Shape::kRing);  // 124,000
}

TEST(AllReduceExact, ARunIsDeterministic) {
  World world{.seed = 9, .members = 6, .floats = 40, .exchanges = 3};
  std::string traces[2];
  for (std::string& trace : traces) {
    ReduceNetwork network(world);
    network.kill_at(2, 60);
    ASSERT_EQ(network.run(), "");
    trace = network.trace();
  }
  EXPECT_EQ(traces[0], traces[1]);
}

// Sums of floats that round: the order is fixed by the members' places, not by arrival.
TEST(AllReduceExact, RoundedSumsDoNotDependOnArrival) {
  for (Shape shape : {Shape::kRing, Shape::kTree}) {
    std::vector<float> first;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Rng rng({.seed = seed});
      Rng values({.seed = 1000});
      constexpr std::size_t kMembers = 7;
      std::vector<std::vector<float>> inputs(kMembers, std::vector<float>(30));
      for (auto& input : inputs) {
        for (float& x : input) x = static_cast<float>(values.normal());
      }
      testing::OneReduction reduction(shape, inputs);
      reduction.run({}, &rng);
      ASSERT_TRUE(reduction.all_done());
      ASSERT_EQ(reduction.out_of_turn, 0U);
      for (std::size_t i = 0; i < kMembers; ++i) {
        const std::vector<float> mean = reduction.mean(i);
        if (first.empty()) first = mean;
        ASSERT_EQ(mean, first);
      }
    }
  }
}

}  // namespace
}  // namespace starling::collective
