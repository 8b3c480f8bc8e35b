// SPDX-License-Identifier: Apache-2.0
#include "coordinator/norm_bound.h"

#include <gtest/gtest.h>

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

TEST(NormBound, RefusesWhatIsNoBound) {
  for (const char* text : {"", "x", "0", "-1", "0.5x", "nan", "inf", "1e999", "3 x", "3xx", "on"}) {
    const auto bound = NormBound::parse(text);
    ASSERT_FALSE(bound) << text;
    EXPECT_EQ(bound.error().code(), "setting-invalid");
  }
}

}  // namespace
}  // namespace starling::coordinator
