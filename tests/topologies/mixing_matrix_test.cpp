// SPDX-License-Identifier: Apache-2.0
#include "topologies/mixing_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace starling::topologies {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kThird = 1.0 / 3;

Error refusal(std::vector<double> diagonal, std::vector<MixingEntry> entries) {
  const auto matrix = MixingMatrix::make(std::move(diagonal), std::move(entries));
  EXPECT_FALSE(matrix);
  EXPECT_EQ(matrix.error().code(), "not-stochastic");
  return matrix.error();
}

TEST(MixingMatrix, RowsAndColumnsAreBothAtHand) {
  const auto matrix =
      MixingMatrix::make({0.5, 0.5, 1}, {{1, 2, 0.25}, {0, 1, 0.25}, {1, 0, 0.25}, {0, 2, 0.25}});
  ASSERT_TRUE(matrix) << matrix.error().message();
  EXPECT_EQ(matrix->nodes(), 3U);
  EXPECT_EQ(matrix->messages(), 4U);
  EXPECT_THAT(matrix->senders(1), ElementsAre(Weight{0, 0.25}, Weight{2, 0.25}));
  EXPECT_THAT(matrix->receivers(2), ElementsAre(Weight{0, 0.25}, Weight{1, 0.25}));
  EXPECT_TRUE(matrix->senders(2).empty());
  EXPECT_TRUE(matrix->row_stochastic());
  EXPECT_FALSE(matrix->column_stochastic());
  EXPECT_FALSE(matrix->doubly_stochastic());
  EXPECT_FALSE(matrix->symmetric());
}

TEST(MixingMatrix, ColumnsAloneMaySumToOne) {
  const auto matrix = MixingMatrix::make({0.5, 1}, {{1, 0, 0.5}});
  ASSERT_TRUE(matrix);
  EXPECT_TRUE(matrix->column_stochastic());
  EXPECT_FALSE(matrix->row_stochastic());
}

TEST(MixingMatrix, SymmetryIsExact) {
  const auto rows = MixingMatrix::make({kThird, kThird, 2 * kThird},
                                       {{0, 1, 2 * kThird}, {1, 0, 2 * kThird}, {2, 0, kThird}});
  ASSERT_TRUE(rows);
  EXPECT_FALSE(rows->symmetric());
  const auto symmetric =
      MixingMatrix::make({kThird, kThird}, {{0, 1, 2 * kThird}, {1, 0, 2 * kThird}});
  ASSERT_TRUE(symmetric);
  EXPECT_TRUE(symmetric->symmetric());
  EXPECT_THAT(symmetric->receivers(0), ElementsAre(Weight{1, 2 * kThird}));
}

TEST(MixingMatrix, OneNodeKeepsItself) {
  const auto matrix = MixingMatrix::make({1}, {});
  ASSERT_TRUE(matrix);
  EXPECT_TRUE(matrix->symmetric() && matrix->doubly_stochastic());
}

TEST(MixingMatrix, WhatIsNotStochasticIsNamed) {
  EXPECT_THAT(refusal({0.5, 0.5}, {{0, 1, 0.5}, {1, 0, 0.6}}).message(),
              HasSubstr("row 1 sums to 1.1 and column 0 to 1.1"));
  EXPECT_THAT(refusal({1.5, 0.5}, {{0, 1, -0.5}, {1, 0, 0.5}}).message(),
              HasSubstr("the weight that node 0 gives to node 1 is -0.5"));
  EXPECT_THAT(refusal({1, std::numeric_limits<double>::quiet_NaN()}, {}).message(),
              HasSubstr("node 1 gives to node 1 is nan"));
  EXPECT_THAT(refusal({0.5, 0.5}, {{0, 1, 0.25}, {0, 1, 0.25}, {1, 0, 0.5}}).message(),
              HasSubstr("(0, 1) stands twice"));
  EXPECT_THAT(refusal({0.5}, {{0, 0, 0.5}}).message(), HasSubstr("(0, 0)"));
  EXPECT_THAT(refusal({0.5}, {{0, 1, 0.5}}).message(), HasSubstr("outside a matrix of 1"));
  EXPECT_THAT(refusal({}, {}).message(), HasSubstr("at least one node"));
}

// The weights of a known mistake: self 1/d and peers 1/(min + 1) for d = 20 give rows of 1.00238.
TEST(MixingMatrix, AlmostStochasticIsNotEnough) {
  std::vector<MixingEntry> entries;
  for (Node i = 0; i < 21; ++i) {
    for (Node j = 0; j < 21; ++j) {
      if (i != j) entries.push_back({i, j, 1.0 / 21});
    }
  }
  EXPECT_THAT(refusal(std::vector<double>(21, 1.0 / 20), entries).message(), HasSubstr("1.00238"));
}

}  // namespace
}  // namespace starling::topologies
