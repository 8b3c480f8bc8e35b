// SPDX-License-Identifier: Apache-2.0
// How long a donor of a model is waited for.
#include <gtest/gtest.h>

#include <vector>

#include "gossip/peer/model_copy.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using protocol::Member;
using protocol::ModelColumns;

class ModelCopies : public ::testing::Test {
 protected:
  static TimePoint at(Duration time) { return TimePoint{} + time; }
  // Whom the copy asks for the first half of the model, of all that it asks.
  std::vector<Member> asked_for_first_half(Duration now) {
    std::vector<Member> asked;
    for (const ModelCopy::Ask& ask : copy_.asks(at(now))) {
      if (ask.columns.begin == 0) asked.push_back(ask.to);
    }
    return asked;
  }
  // Both are asked for a half, and the second one gives its own.
  void begin() {
    EXPECT_EQ(asked_for_first_half(0s), std::vector<Member>{1});
    const std::vector<float> half(5);
    copy_.take(2, {.exchange = 7, .begin = 5, .floats = 5}, {}, half);
  }

  const ModelColumns first_half_{.exchange = 7, .begin = 0, .floats = 5};
  ModelCopy copy_{{1, 2}, std::nullopt, 10, {.silent = 2s, .sending = 60s}, {}};
};

TEST_F(ModelCopies, ADonorThatStallsInTheMiddleIsReplacedAfterOneSilence) {
  begin();
  copy_.progressed(1, first_half_, at(1s));
  copy_.progressed(1, first_half_, at(2500ms));
  EXPECT_EQ(copy_.next_deadline(), at(4500ms));
  EXPECT_TRUE(asked_for_first_half(4499ms).empty());
  EXPECT_EQ(asked_for_first_half(4500ms), std::vector<Member>{2});
}

TEST_F(ModelCopies, ADonorThatSendsLittleByLittleIsReplacedInTheEnd) {
  begin();
  for (Duration now = 1s; now < 61s; now += 1s) {
    copy_.progressed(1, first_half_, at(now));
    EXPECT_TRUE(asked_for_first_half(now).empty());
  }
  EXPECT_EQ(asked_for_first_half(61s), std::vector<Member>{2});
}

// A spare may be a minority that is behind. Its word of where it is comes with the model.
TEST(ModelCopy, WhatRestsOnLessThanAQuorumsOwnIsNotTaken) {
  constexpr protocol::Support kOwn{.minority = false, .backed = 8};
  constexpr ModelColumns kWhole{.exchange = 9, .begin = 0, .floats = 10};
  const std::vector<float> values(10);
  for (const auto& [support, is_taken] :
       {std::pair{protocol::Support{.minority = true, .backed = 7}, false},
        {{.minority = true, .backed = 8}, true},
        {{.minority = false, .backed = 7}, true}}) {
    ModelCopy copy({1}, 2, 10, {.silent = 2s, .sending = 60s}, kOwn);
    ASSERT_EQ(copy.asks(TimePoint{}).size(), 1U);
    copy.take(1, kWhole, support, values);
    EXPECT_EQ(copy.done(), is_taken);
    if (is_taken) continue;
    const auto asks = copy.asks(TimePoint{});
    ASSERT_EQ(asks.size(), 1U) << "another is asked";
    EXPECT_EQ(asks[0].to, 2U);
    copy.take(2, kWhole, support, values);
    EXPECT_TRUE(copy.failed());
  }
  ModelCopy minority({1}, 2, 10, {.silent = 2s, .sending = 60s}, {.minority = true, .backed = 8});
  (void)minority.asks(TimePoint{});
  minority.take(1, kWhole, {.minority = true, .backed = 7}, values);
  EXPECT_TRUE(minority.done());
}

// It may not hear us, or is busy: another is asked, and it itself again where that one gives
// nothing either.
TEST(ModelCopy, OfWhomNothingComesAnotherIsAskedBesideIt) {
  ModelCopy copy({1}, 2, 10, {.silent = 60s, .sending = 60s, .begins = 4s}, {});
  const auto asked = [&](Duration now) {
    std::vector<Member> members;
    for (const ModelCopy::Ask& ask : copy.asks(TimePoint{} + now)) members.push_back(ask.to);
    return members;
  };
  EXPECT_EQ(asked(0s), std::vector<Member>{1}) << "the spare one is not asked at first";
  EXPECT_EQ(copy.next_deadline(), TimePoint{} + 4s);
  EXPECT_EQ(asked(4s), std::vector<Member>{2});
  EXPECT_EQ(copy.gave_nothing(), std::vector<Member>{1});
  EXPECT_EQ(copy.next_deadline(), TimePoint{} + 64s) << "nobody else is left to be asked";
  EXPECT_TRUE(asked(63s).empty());
  copy.put_off(2);
  EXPECT_EQ(copy.next_deadline(), TimePoint{} + 64s);
  EXPECT_EQ(asked(64s), std::vector<Member>{1});
}

// Whoever answers first.
TEST(ModelCopy, WhatADonorSendsAfterAnotherWasAskedCounts) {
  ModelCopy copy({1}, 2, 10, {.silent = 60s, .sending = 60s, .begins = 4s}, {});
  EXPECT_EQ(copy.asks(TimePoint{}).size(), 1U);
  EXPECT_EQ(copy.asks(TimePoint{} + 4s).size(), 1U);
  const ModelColumns all{.exchange = 7, .begin = 0, .floats = 10};
  EXPECT_TRUE(copy.expects(2, all));
  ASSERT_TRUE(copy.expects(1, all));
  copy.progressed(1, all, TimePoint{} + 5s);
  copy.progressed(2, all, TimePoint{} + 6s);
  EXPECT_EQ(copy.next_deadline(), TimePoint{} + 65s) << "the second one's pieces are not counted";
  copy.take(1, all, {}, std::vector<float>(10));
  EXPECT_TRUE(copy.done());
  EXPECT_TRUE(copy.gave_nothing().empty());
  EXPECT_FALSE(copy.expects(2, all));
}

// Of two parts, one after the other.
TEST(ModelCopy, ADonorThatSendsOnePartIsWaitedForWithTheOther) {
  ModelCopy copy({1, 2}, std::nullopt, 10, {.silent = 60s, .sending = 60s, .begins = 4s}, {});
  EXPECT_EQ(copy.asks(TimePoint{}).size(), 2U);
  copy.lose(2);
  EXPECT_EQ(copy.asks(TimePoint{} + 1s).size(), 1U);
  copy.progressed(1, {.exchange = 7, .begin = 0, .floats = 5}, TimePoint{} + 4s);
  EXPECT_TRUE(copy.asks(TimePoint{} + 7s).empty());
  EXPECT_EQ(copy.next_deadline(), TimePoint{} + 64s);
}

TEST(ModelCopy, ADonorThatHasBegunIsWaitedFor) {
  ModelCopy copy({1}, 2, 10, {.silent = 60s, .sending = 60s, .begins = 4s}, {});
  ASSERT_EQ(copy.asks(TimePoint{}).size(), 1U);
  copy.progressed(1, {.exchange = 7, .begin = 0, .floats = 10}, TimePoint{} + 1s);
  EXPECT_TRUE(copy.asks(TimePoint{} + 4s).empty());
  EXPECT_EQ(copy.next_deadline(), TimePoint{} + 61s);
}

}  // namespace
}  // namespace starling::gossip
