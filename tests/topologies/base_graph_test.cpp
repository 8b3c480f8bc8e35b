// SPDX-License-Identifier: Apache-2.0
#include "topologies/base_graph.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/topologies/dense.h"

namespace starling::topologies {
namespace {

using starling::testing::degree_max;
using starling::testing::dense;
using starling::testing::distance_from_mean;
using starling::testing::product;
using starling::testing::topology;

std::string spec(Node k) { return "base-graph:k=" + std::to_string(k); }

class BaseGraphOfK : public ::testing::TestWithParam<Node> {};

TEST_P(BaseGraphOfK, IsExactForEveryNumberOfNodes) {
  const Node k = GetParam();
  for (Node n = 1; n <= 128; ++n) {
    const auto graph = topology(spec(k), n);
    const std::uint64_t length = graph->period();
    EXPECT_LT(distance_from_mean(product(*graph, length)), 1e-14) << "n = " << n;
    EXPECT_LE(static_cast<double>(length), 2 * std::log(n) / std::log(k + 1) + 2) << "n = " << n;
    for (std::uint64_t t = 0; t < length; ++t) {
      const auto matrix = graph->at(t);
      EXPECT_TRUE(matrix->symmetric() && matrix->doubly_stochastic()) << "n = " << n;
      EXPECT_LE(degree_max(*matrix), k) << "n = " << n << ", step " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(K, BaseGraphOfK, ::testing::Values(1, 2, 3, 4, 7));

TEST(BaseGraph, LengthsAreThoseOfThePaper) {
  const std::map<Node, std::map<Node, std::uint64_t>> lengths = {
      {1,
       {{3, 3},
        {5, 5},
        {6, 4},
        {7, 5},
        {9, 7},
        {10, 6},
        {12, 5},
        {16, 4},
        {24, 6},
        {25, 9},
        {31, 9},
        {33, 11}}},
      {2, {{5, 3}, {10, 4}, {25, 6}, {27, 3}}},
      {3, {{10, 4}, {16, 2}, {25, 5}}}};
  for (const auto& [k, of_n] : lengths) {
    for (const auto& [n, length] : of_n) {
      EXPECT_EQ(BaseGraph(n, k).length(), length) << "n = " << n << ", k = " << k;
    }
  }
}

TEST(BaseGraph, SixNodesAreThoseOfThePaper) {
  const auto graph = topology("base-graph:k=1", 6);
  const auto pairs = [&](std::uint64_t t) {
    std::map<std::pair<Node, Node>, double> found;
    const auto matrix = graph->at(t);
    for (Node i = 0; i < 6; ++i) {
      for (const Weight& sender : matrix->senders(i)) {
        if (i < sender.node) found[{i + 1, sender.node + 1}] = sender.weight;
      }
    }
    return found;
  };
  using Pairs = std::map<std::pair<Node, Node>, double>;
  EXPECT_EQ(pairs(0), (Pairs{{{1, 2}, 0.5}, {{4, 5}, 0.5}}));
  EXPECT_EQ(pairs(1), (Pairs{{{2, 3}, 2.0 / 3}, {{5, 6}, 2.0 / 3}}));
  EXPECT_EQ(pairs(2), (Pairs{{{1, 2}, 0.5}, {{4, 5}, 0.5}}));
  EXPECT_EQ(pairs(3), (Pairs{{{1, 4}, 0.5}, {{2, 5}, 0.5}, {{3, 6}, 0.5}}));
}

TEST(BaseGraph, ManyNodesAreExactOnAVector) {
  // Small integers, so that their sum and mean are known without rounding.
  constexpr Node kNodes = 100'000;
  for (const Node k : {1U, 3U}) {
    const auto graph = topology(spec(k), kNodes);
    std::vector<double> x(kNodes);
    for (Node i = 0; i < kNodes; ++i) x[i] = i % 7 == 0 ? 1 : 0;
    const double mean = (kNodes + 6) / 7 / static_cast<double>(kNodes);
    for (std::uint64_t t = 0; t < graph->period(); ++t) {
      const auto matrix = graph->at(t);
      std::vector<double> mixed(kNodes);
      for (Node i = 0; i < kNodes; ++i) {
        mixed[i] = matrix->self(i) * x[i];
        for (const Weight& sender : matrix->senders(i)) mixed[i] += sender.weight * x[sender.node];
      }
      x = std::move(mixed);
    }
    for (Node i = 0; i < kNodes; ++i) ASSERT_NEAR(x[i], mean, 1e-14);
  }
}

TEST(Factorize, PrefersLargeFactors) {
  EXPECT_EQ(factorize(24, 4), (std::vector<Node>{2, 3, 4}));
  EXPECT_EQ(factorize(1, 2), std::vector<Node>{});
  EXPECT_EQ(factorize(10, 4), std::nullopt);
}

}  // namespace
}  // namespace starling::topologies
