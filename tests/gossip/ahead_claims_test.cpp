// SPDX-License-Identifier: Apache-2.0
// Whose word that others are further is believed.
#include "gossip/collective/ahead_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using protocol::Exchange;
using protocol::Member;

// Members that ended an exchange a second with a majority, and are at exchange 10.
class Claims : public ::testing::Test {
 protected:
  AheadClaims in_step(std::size_t members) {
    AheadClaims claims(members, 0, 0, 3s);
    for (Exchange exchange = 0; exchange < 10; ++exchange, now_ += 1s) {
      claims.pace().ended(exchange, now_);
    }
    return claims;
  }
  static void tell(AheadClaims& claims, Member from, Exchange exchange, bool has_left = true) {
    claims.hear(from, {.backed = exchange, .exchange = exchange}, {from}, has_left);
  }
  // For 3 s: where no other can be heard its claim was followed, and no model came.
  void doubt(AheadClaims& claims, Member member) {
    tell(claims, member, 11);
    EXPECT_TRUE(claims.follow(kOurs, 1, now_));
    claims.begin(kOurs, now_);
    EXPECT_EQ(believed(claims, 1), 0U) << "nobody is, until an exchange begins";
    claims.begin(kOurs, now_);
  }
  // The exchange that is believed; 0: none.
  Exchange believed(AheadClaims& claims, std::size_t others) {
    const auto said = claims.believed(kOurs, others, now_);
    if (!said) return 0;
    witnesses_ = said->witnesses;
    return said->further.next.exchange;
  }

  static constexpr Exchange kFar = 100'000;
  static constexpr protocol::Progress kOurs{.backed = 10, .exchange = 10};
  TimePoint now_{100s};
  std::vector<Member> witnesses_;
};

TEST_F(Claims, MoreThanHalfAreBelievedWithoutABoundAndNobodyIsAWitness) {
  AheadClaims claims = in_step(5);
  for (const Member member : {1U, 2U, 3U}) doubt(claims, member);
  for (const Member from : {1U, 2U}) tell(claims, from, kFar);
  EXPECT_EQ(believed(claims, 4), 0U);
  tell(claims, 3, kFar + 1);
  EXPECT_EQ(believed(claims, 4), kFar) << "to which three have come";
  EXPECT_TRUE(witnesses_.empty());
  EXPECT_EQ(believed(claims, 4), kFar);
}

// Those that are behind may be in step with each other: no time explains the others' lead.
TEST_F(Claims, HalfAreBelievedOnceInAWait) {
  AheadClaims claims = in_step(4);
  doubt(claims, 1);
  for (const Member from : {1U, 2U}) tell(claims, from, kFar);
  EXPECT_EQ(believed(claims, 3), kFar);
  now_ += 2999ms;
  EXPECT_EQ(believed(claims, 3), 0U);
  now_ += 1ms;
  EXPECT_EQ(believed(claims, 3), kFar);
  AheadClaims of_two = in_step(2);
  tell(of_two, 1, kFar);
  EXPECT_EQ(believed(of_two, 1), 0U) << "one of two may lie";
}

// Groups that are not drawn together get ahead of each other without a fault.
TEST_F(Claims, NobodyIsFollowedOfWhomNoneHasLeftUs) {
  AheadClaims claims = in_step(5);
  for (const Member from : {1U, 2U, 3U}) tell(claims, from, 14, false);
  EXPECT_EQ(believed(claims, 4), 0U) << "not even most";
  tell(claims, 4, 12);
  EXPECT_EQ(believed(claims, 4), 12U) << "all say at least that";
  tell(claims, 4, 15);
  EXPECT_EQ(believed(claims, 4), 14U) << "it and one of the others";
  AheadClaims doubting = in_step(5);
  doubt(doubting, 4);
  for (const Member from : {1U, 2U}) tell(doubting, from, 14, false);
  tell(doubting, 4, 15);
  EXPECT_EQ(believed(doubting, 4), 14U) << "three are most, whoever of them is doubted";
  doubting.forget(2);
  EXPECT_EQ(believed(doubting, 4), 0U) << "who has left is doubted";
}

TEST_F(Claims, ADoubtedMemberIsNoWitnessUnlessItIsTheOnlyOne) {
  AheadClaims claims = in_step(5);
  AheadClaims doubting = claims;
  for (const Member from : {1U, 2U}) tell(claims, from, 14);
  EXPECT_EQ(believed(claims, 4), 14U);
  EXPECT_THAT(witnesses_, ::testing::UnorderedElementsAre(1, 2));
  for (int i = 0; i < 2; ++i) doubt(doubting, 2);  // now for 6 s
  AheadClaims alone = doubting;
  for (const Member from : {1U, 2U}) tell(doubting, from, 14);
  EXPECT_EQ(believed(doubting, 4), 0U) << "one says it, of the four that can be heard";
  now_ += 5s;
  EXPECT_EQ(believed(doubting, 4), 14U) << "as far as it makes up for time";
  EXPECT_THAT(witnesses_, ::testing::ElementsAre(1));
  tell(alone, 2, 14);
  EXPECT_EQ(believed(alone, 2), 0U);
  EXPECT_EQ(believed(alone, 1), 14U);
}

// The model does not show whether the claim was true.
TEST_F(Claims, WhoseModelCameIsDoubtedForAShorterTime) {
  AheadClaims claims = in_step(5);
  for (const Member from : {1U, 2U}) tell(claims, from, 14);
  ASSERT_TRUE(claims.follow(kOurs, 4, now_));
  claims.copied(now_);
  claims.begin(kOurs, now_);
  EXPECT_EQ(believed(claims, 4), 0U);
  now_ += 188ms;
  EXPECT_EQ(believed(claims, 4), 14U);
  EXPECT_FALSE(claims.follow({.backed = 14, .exchange = 14}, 4, now_)) << "we are there";
}

TEST_F(Claims, TheOthersAreAskedOnceForAClaim) {
  AheadClaims claims = in_step(5);
  tell(claims, 1, kFar);
  EXPECT_THAT(claims.to_ask(now_), ::testing::ElementsAre(2, 3, 4));
  EXPECT_THAT(claims.to_ask(now_), ::testing::IsEmpty());
  EXPECT_EQ(claims.looks_at(), now_ + 3s);
  tell(claims, 2, kFar);
  EXPECT_THAT(claims.to_ask(now_ + 2999ms), ::testing::IsEmpty());
  EXPECT_THAT(claims.to_ask(now_ + 3s), ::testing::ElementsAre(3, 4));
}

}  // namespace
}  // namespace starling::collective
