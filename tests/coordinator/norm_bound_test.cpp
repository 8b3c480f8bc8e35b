// SPDX-License-Identifier: Apache-2.0
#include "coordinator/norm_bound.h"

#include <gtest/gtest.h>

#include <string>

namespace starling::coordinator {
namespace {

std::optional<double> limit(std::string_view text, const RecentNorms& norms) {
  return NormBound::parse(text).value().limit(norms);
}

TEST(NormBound, IsANumberAMultipleOfTheMedianOrNone) {
  const RecentNorms norms = {{3, 1}, {2, 50, 4}};
  EXPECT_EQ(limit("off", norms), std::nullopt);
  EXPECT_EQ(limit("12.5", norms), 12.5);
  EXPECT_EQ(limit("12.5", {}), 12.5);
  EXPECT_EQ(limit("10x", norms), 30) << "the median of 1 2 3 4 50 is 3";
  EXPECT_EQ(limit("1x", {{2, 1}}), 1) << "of two, the smaller";
}

TEST(NormBound, AMultipleNeedsSomethingToReferTo) {
  EXPECT_EQ(limit("10x", {}), std::nullopt);
  EXPECT_EQ(limit("10x", {{}, {}}), std::nullopt);
  EXPECT_EQ(limit("10x", {{0, 0, 5}}), std::nullopt) << "nobody could pass a bound of 0";
}

TEST(NormBound, AMultipleIsRaisedAndANumberIsNot) {
  const RecentNorms norms = {{2, 3, 4}};
  EXPECT_EQ(NormBound::parse("10x").value().limit(norms, 2), 3000);
  EXPECT_EQ(NormBound::parse("1x").value().limit(norms, 2), 12) << "by 2 at least";
  EXPECT_EQ(NormBound::parse("5").value().limit(norms, 2), 5);
}

struct Failed {
  std::string code;
};
const std::vector<Failed> kThreeOfMany = {
    {"norm-above-bound"}, {"deadline"}, {"norm-above-bound"}, {"norm-above-bound"}};
const std::vector<Failed> kTwo = {{"norm-above-bound"}, {"norm-above-bound"}};

TEST(NormRaises, OnlyAMajorityOfAllThatWereAskedRaisesTheBound) {
  RecentNorms norms = {{1}};
  NormRaises raises;
  EXPECT_TRUE(raises.attempt_ended(6, kThreeOfMany, false, norms)) << "half may be attackers";
  EXPECT_EQ(raises.count(), 0);
  EXPECT_FALSE(raises.attempt_ended(5, kThreeOfMany, false, norms)) << "nobody is to blame";
  EXPECT_EQ(raises.count(), 1);
  EXPECT_FALSE(raises.attempt_ended(5, kThreeOfMany, false, norms));
  EXPECT_EQ(raises.count(), 2);
}

TEST(NormRaises, AfterAMajorityAMinorityRaisesItOnceMoreAndNoFurther) {
  RecentNorms norms = {{1}};
  NormRaises raises;
  raises.attempt_ended(5, kThreeOfMany, false, norms);
  EXPECT_FALSE(raises.attempt_ended(5, kTwo, false, norms));
  EXPECT_EQ(raises.count(), 2);
  for (int i = 0; i < 3; ++i) raises.attempt_ended(5, kTwo, false, norms);
  EXPECT_EQ(raises.count(), 2);
  raises.attempt_ended(5, std::vector<Failed>(), false, norms);
  EXPECT_EQ(raises.count(), 2) << "no news of the bound";
}

TEST(NormRaises, TheCommittedRoundEndsThemAndTheNormsBeforeIt) {
  RecentNorms norms = {{1}};
  NormRaises raises;
  EXPECT_TRUE(raises.attempt_ended(5, kTwo, true, norms));
  EXPECT_EQ(norms.size(), 1U);
  raises.attempt_ended(5, kThreeOfMany, false, norms);
  EXPECT_TRUE(raises.attempt_ended(5, kTwo, true, norms));
  EXPECT_EQ(raises.count(), 0);
  EXPECT_TRUE(norms.empty());
}

TEST(NormBound, RefusesWhatIsNoBound) {
  for (const char* text : {"", "x", "0", "-1", "0.5x", "nan", "inf", "1e999", "3 x", "3xx", "on"}) {
    const auto bound = NormBound::parse(text);
    ASSERT_FALSE(bound) << text;
    EXPECT_EQ(bound.error().code(), "setting-invalid");
  }
}

}  // namespace
}  // namespace starling::coordinator
