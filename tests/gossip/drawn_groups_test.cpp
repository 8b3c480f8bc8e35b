// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/drawn_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/rng.h"
#include "gossip/collective/reduced_mean.h"
#include "tests/gossip/one_reduction.h"

namespace starling::collective {
namespace {

using protocol::Member;

TEST(DrawnGroups, AreAPartitionIntoNearlyEqualParts) {
  for (const std::uint32_t size : {2U, 3U, 8U}) {
    for (std::uint32_t members = 1; members <= 40; ++members) {
      const GroupDraw draw{.seed = 5, .members = members, .size = size};
      const auto groups = draw.at(members * 7ULL);
      EXPECT_EQ(groups.size(), (members + size - 1) / size);
      std::set<Member> all;
      std::size_t least = members;
      std::size_t most = 0;
      for (const auto& group : groups) {
        EXPECT_TRUE(std::ranges::is_sorted(group));
        all.insert(group.begin(), group.end());
        least = std::min(least, group.size());
        most = std::max(most, group.size());
        for (const Member member : group) EXPECT_EQ(draw.group_of(member, members * 7ULL), group);
      }
      EXPECT_EQ(all.size(), members);
      EXPECT_EQ(*all.rbegin(), members - 1);
      EXPECT_LE(most, size);
      EXPECT_LE(most, least + 1);
      EXPECT_GE(least, 1U);
    }
  }
}

TEST(DrawnGroups, FollowFromSeedExchangeAndMembersAlone) {
  const GroupDraw draw{.seed = 5, .members = 32, .size = 4};
  const std::uint64_t far = std::uint64_t{1} << 32;
  EXPECT_EQ(draw.at(3), (GroupDraw{.seed = 5, .members = 32, .size = 4}.at(3)));
  EXPECT_NE(draw.at(3), draw.at(4));
  EXPECT_NE(draw.at(3), draw.at(3 + far));
  EXPECT_NE(draw.at(3), (GroupDraw{.seed = 6, .members = 32, .size = 4}.at(3)));
}

// Two members are in one group with probability (G - 1) / (n - 1); 66 pairs of 12, five deviations.
TEST(DrawnGroups, BringAnyTwoMembersTogetherAlikeOften) {
  constexpr std::uint64_t kDraws = 4000;
  const GroupDraw draw{.seed = 9, .members = 12, .size = 4};
  std::map<std::pair<Member, Member>, double> together;
  for (std::uint64_t exchange = 0; exchange < kDraws; ++exchange) {
    for (const auto& group : draw.at(exchange)) {
      for (const Member a : group) {
        for (const Member b : group) together[{a, b}] += 1;
      }
    }
  }
  const double share = 3.0 / 11;
  const double deviation = std::sqrt(kDraws * share * (1 - share));
  for (const auto& [pair, times] : together) {
    if (pair.first == pair.second) continue;
    EXPECT_NEAR(times, kDraws * share, 5 * deviation);
  }
}

// Of numbers that round, also where there are fewer of them than members.
TEST(ReducedMean, HasTheBitsOfAReduction) {
  Rng rng({.seed = 4});
  for (const ShapeRule::Choice choice :
       {ShapeRule::Choice::kRing, ShapeRule::Choice::kTree, ShapeRule::Choice::kFaster}) {
    for (std::size_t members = 1; members <= 9; ++members) {
      for (const std::size_t size : {1U, 5U, 1300U}) {
        std::vector<std::vector<float>> inputs(members, std::vector<float>(size));
        for (auto& input : inputs) {
          for (float& x : input) x = static_cast<float>(rng.normal());
        }
        const ShapeRule rule{.choice = choice};
        std::vector<float> mean(size);
        const std::vector<std::span<const float>> views(inputs.begin(), inputs.end());
        reduced_mean(views, rule, mean);
        testing::OneReduction reduction(choose_shape(rule, members, size), inputs);
        reduction.run();
        ASSERT_TRUE(reduction.all_done());
        ASSERT_EQ(reduction.out_of_turn, 0U);
        EXPECT_EQ(mean, reduction.mean(0)) << members << " members, " << size << " floats";
      }
    }
  }
}

}  // namespace
}  // namespace starling::collective
