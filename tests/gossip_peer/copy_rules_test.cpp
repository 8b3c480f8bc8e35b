// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/copy_rules.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

using protocol::ColumnsAsk;

const TimePoint kStart(std::chrono::hours(1));
constexpr std::uint64_t kSize = 100;

class CopyRulesTest : public ::testing::Test {
 protected:
  bool gives(protocol::Member member, bool is_neighbour, TimePoint now = kStart,
             ColumnsAsk columns = {.begin = 0, .end = kSize}) {
    answer = rules.give(member, is_neighbour, columns, kSize, now);
    return answer == CopyRules::Answer::kGiven;
  }
  CopyRules::Answer answer{};  // the last one
  CopyRules rules{{.lag = 4,
                   .neighbours = {.at_once = 2, .every = std::chrono::seconds(30)},
                   .others = {.at_once = 2, .every = std::chrono::seconds(60)}}};
};

TEST_F(CopyRulesTest, NeighboursAndThoseWhoAreBehindAreGivenTheModel) {
  EXPECT_TRUE(gives(1, true));
  EXPECT_FALSE(gives(2, false)) << "it was never heard";
  EXPECT_EQ(answer, CopyRules::Answer::kNotGiven);
  rules.greeted(2, {.exchange = 100, .begun = true}, 100);
  EXPECT_FALSE(gives(2, false));
  rules.greeted(2, {.exchange = 96, .begun = true}, 100);
  EXPECT_FALSE(gives(2, false)) << "messages bring it up to date";
  rules.greeted(2, {.exchange = 95, .begun = true}, 100);
  EXPECT_TRUE(gives(2, false));
  rules.greeted(2, {.exchange = 101, .begun = true}, 101);
  EXPECT_FALSE(gives(2, false)) << "it has caught up";
  rules.greeted(3, {.begun = false}, 0);
  EXPECT_TRUE(gives(3, false));
  rules.greeted(4, {.exchange = 120, .begun = true, .support = {.minority = true}}, 100);
  EXPECT_TRUE(gives(4, false));
  rules.greeted(5, {.exchange = ~std::uint64_t{0}, .begun = true}, 100);
  EXPECT_FALSE(gives(5, false));
  rules.greeted(6, {.exchange = 0, .begun = true}, 0);
  EXPECT_FALSE(gives(6, false));
}

// Its hello is its own word; what it sends at the same time is another.
TEST_F(CopyRulesTest, WhoSendsMessagesOfOurExchangeHasAModel) {
  rules.greeted(2, {.begun = false}, 100);
  rules.heard(2, 40, 100);
  EXPECT_TRUE(gives(2, false));
  rules.heard(2, 96, 100);
  EXPECT_FALSE(gives(2, false));
  rules.greeted(2, {.begun = false}, 100);
  EXPECT_FALSE(gives(2, false)) << "whatever it says again on the same link";
  rules.link_lost(2);
  rules.greeted(2, {.begun = false}, 101);
  EXPECT_TRUE(gives(2, false)) << "another process perhaps";
}

TEST_F(CopyRulesTest, AFewModelsAtOnceAndThenOneInAWhile) {
  EXPECT_TRUE(gives(1, true));
  EXPECT_TRUE(gives(1, true));
  EXPECT_FALSE(gives(1, true));
  EXPECT_EQ(answer, CopyRules::Answer::kTooOften);
  EXPECT_TRUE(gives(2, true)) << "each member for itself";
  EXPECT_FALSE(gives(1, true, kStart + std::chrono::seconds(29)));
  EXPECT_TRUE(gives(1, true, kStart + std::chrono::seconds(30)));
  EXPECT_FALSE(gives(1, true, kStart + std::chrono::seconds(31)));
}

TEST_F(CopyRulesTest, WhoIsNoNeighbourIsGivenLess) {
  rules.greeted(1, {.begun = false}, 0);
  EXPECT_TRUE(gives(1, false));
  EXPECT_TRUE(gives(1, false));
  EXPECT_FALSE(gives(1, false, kStart + std::chrono::seconds(59)));
  EXPECT_TRUE(gives(1, false, kStart + std::chrono::seconds(60)));
}

// Each time with the word that it has no model.
TEST_F(CopyRulesTest, WhoComesBackAgainAndAgainIsGivenNoMore) {
  for (const bool is_neighbour : {false, true}) {
    const protocol::Member member = is_neighbour ? 2 : 1;
    int given = 0;
    for (int second = 0; second < 600; ++second) {
      rules.link_lost(member);
      rules.greeted(member, {.begun = false}, 100);
      if (gives(member, is_neighbour, kStart + std::chrono::seconds(second))) ++given;
      rules.heard(member, 100, 100);
    }
    EXPECT_EQ(given, is_neighbour ? 2 + 600 / 30 - 1 : 2 + 600 / 60 - 1);
  }
}

TEST_F(CopyRulesTest, PartsCountAsParts) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(gives(1, true, kStart, {.begin = 0, .end = 25})) << i;
  }
  EXPECT_FALSE(gives(1, true, kStart, {.begin = 0, .end = 25}));
}

TEST_F(CopyRulesTest, WhatIsNoPartOfTheModelIsNotGiven) {
  EXPECT_FALSE(gives(1, true, kStart, {.begin = 0, .end = kSize + 1}));
  EXPECT_FALSE(gives(1, true, kStart, {.begin = 5, .end = 5}));
  EXPECT_TRUE(gives(1, true));
}

}  // namespace
}  // namespace starling::gossip
