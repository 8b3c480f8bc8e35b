// SPDX-License-Identifier: Apache-2.0
// Whose word that others are further is believed.
#include "gossip/collective/ahead_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using protocol::Exchange;
using protocol::Member;

// Members that ended an exchange a second with a majority, and are at exchange 10.
class Claims : public ::testing::Test {
 protected:
  AheadClaims in_step(std::size_t members) {
    AheadClaims claims(members, 0);
    for (Exchange exchange = 0; exchange < 10; ++exchange, now_ += 1s) {
      claims.pace().ended(exchange, now_);
    }
    return claims;
  }
  static void tell(AheadClaims& claims, Member from, Exchange exchange) {
    claims.hear(from, {{.backed = exchange, .exchange = exchange}, {from}, from});
  }
  // The exchange that is believed; 0: none.
  Exchange believed(AheadClaims& claims, std::size_t others) {
    const auto is_doubted = [this](Member member) { return doubted_.contains(member); };
    const auto said = claims.believed(others, is_doubted, now_, 3s);
    if (!said) return 0;
    witnesses_ = said->witnesses;
    return said->further.next.exchange;
  }

  static constexpr Exchange kFar = 100'000;
  TimePoint now_{100s};
  std::set<Member> doubted_;
  std::vector<Member> witnesses_;
};

TEST_F(Claims, MoreThanHalfAreBelievedWithoutABoundAndNobodyIsAWitness) {
  AheadClaims claims = in_step(5);
  doubted_ = {1, 2, 3};
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
  doubted_ = {1};
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

TEST_F(Claims, ADoubtedMemberIsNoWitnessUnlessItIsTheOnlyOne) {
  AheadClaims claims = in_step(5);
  for (const Member from : {1U, 2U}) tell(claims, from, 14);
  EXPECT_EQ(believed(claims, 4), 14U);
  EXPECT_THAT(witnesses_, ::testing::UnorderedElementsAre(1, 2));
  doubted_ = {2};
  EXPECT_EQ(believed(claims, 4), 0U) << "one says it, of the four that can be heard";
  now_ += 5s;
  EXPECT_EQ(believed(claims, 4), 14U) << "as far as it makes up for time";
  EXPECT_THAT(witnesses_, ::testing::ElementsAre(1));
  AheadClaims alone = in_step(5);
  tell(alone, 2, 14);
  now_ += 5s;
  EXPECT_EQ(believed(alone, 2), 0U);
  EXPECT_EQ(believed(alone, 1), 14U);
}

}  // namespace
}  // namespace starling::collective
