// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/norm_bound.h"

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
  std::string client;
  std::string code;
};
struct Counted {
  std::string client;
};

// Of clients named by a letter each: those that the bound refuses, and those that miss the
// deadline.
class NormRaisesTest : public ::testing::Test {
 protected:
  bool attempt(std::string_view refused, std::string_view others, bool committed = false) {
    std::vector<Failed> failures;
    std::vector<Counted> counted;
    for (const char name : refused) failures.push_back({{name}, "norm-above-bound"});
    for (const char name : others) {
      if (counted.empty()) {
        counted.push_back({{name}});
      } else {
        failures.push_back({{name}, "deadline"});
      }
    }
    return raises.attempt_ended(counted, failures, committed, norms);
  }

  NormRaises raises;
  RecentNorms norms = {{1}};
};

TEST_F(NormRaisesTest, OnlyAMajorityOfAllThatWereAskedRaisesTheBound) {
  EXPECT_TRUE(attempt("abc", "def")) << "half may be attackers";
  EXPECT_EQ(raises.count(), 0);
  EXPECT_FALSE(attempt("abcd", "ef")) << "it may be the bound that is wrong";
  EXPECT_EQ(raises.count(), 1);
  EXPECT_FALSE(attempt("abc", "de"));
  EXPECT_EQ(raises.count(), 2);
}

TEST_F(NormRaisesTest, AfterAMajorityAMinorityRaisesItOnceMoreAndNoFurther) {
  attempt("abc", "de");
  EXPECT_FALSE(attempt("ab", "cde"));
  EXPECT_EQ(raises.count(), 2);
  for (int i = 0; i < 3; ++i) attempt("ab", "cde");
  EXPECT_EQ(raises.count(), 2);
  attempt("", "abcde");
  EXPECT_EQ(raises.count(), 2) << "no news of the bound";
}

TEST_F(NormRaisesTest, TheSameOneOrTwoClientsInSmallCohortsRaiseNothing) {
  for (int i = 0; i < 9; ++i) attempt("x", "");
  EXPECT_EQ(raises.count(), 0);
  for (int i = 0; i < 9; ++i) attempt("xy", "a");
  EXPECT_EQ(raises.count(), 0);
}

TEST_F(NormRaisesTest, SmallCohortsRaiseItTogetherAndEachRaiseNeedsThemAgain) {
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(raises.count(), 0) << name;
    attempt(name, "");
  }
  EXPECT_EQ(raises.count(), 1);
  attempt("x", "");
  EXPECT_EQ(raises.count(), 2) << "once in advance";
  for (int i = 0; i < 9; ++i) attempt("xy", "");
  EXPECT_EQ(raises.count(), 2);
}

TEST_F(NormRaisesTest, ThreeAttackersThatAreDrawnMoreOftenAreNoMajorityOfThoseAsked) {
  attempt("", "abc");
  for (int i = 0; i < 9; ++i) attempt("xyz", "a");
  EXPECT_EQ(raises.count(), 0) << "3 of 6";
}

TEST_F(NormRaisesTest, TheCommittedRoundEndsThemAndTheNormsBeforeIt) {
  EXPECT_TRUE(attempt("ab", "cde", true));
  EXPECT_EQ(norms.size(), 1U);
  attempt("abc", "de");
  EXPECT_TRUE(attempt("ab", "cde", true));
  EXPECT_EQ(raises.count(), 0);
  EXPECT_TRUE(norms.empty());
}

TEST_F(NormRaisesTest, ARoundThatCommitsInSpiteOfAMajorityEndsThemToo) {
  EXPECT_FALSE(attempt("abcdef", "ghij", true)) << "no client is blamed";
  EXPECT_EQ(raises.count(), 0);
  EXPECT_EQ(norms.size(), 1U) << "the bound was not raised";
  attempt("abc", "de");
  attempt("abc", "de", true);
  EXPECT_EQ(raises.count(), 0);
  EXPECT_TRUE(norms.empty());
  attempt("ab", "");
  EXPECT_EQ(raises.count(), 0) << "what was asked in the round before does not count";
}

TEST_F(NormRaisesTest, ANumberIsNotRaisedAndItsClientsAreToBlame) {
  raises = NormRaises(NormBound::parse("5").value());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(attempt("abc", "de"));
  EXPECT_EQ(raises.count(), 0);
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
