// SPDX-License-Identifier: Apache-2.0
// What topologies bear, against closed forms of the algebraic connectivity.
#include "topologies/robustness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace starling::topologies {
namespace {

std::unique_ptr<const Topology> make(const std::string& spec, Node nodes,
                                     const std::string& mixing = "own") {
  return Topology::make({.spec = spec, .nodes = nodes, .mixing = mixing}).value();
}
std::optional<Robustness> robustness(const Topology& topology) {
  return robustness(topology, analyse(topology).value());
}
double mu2(const std::string& spec, Node nodes, const std::string& mixing = "own") {
  return robustness(*make(spec, nodes, mixing))->mu2.value;
}

TEST(Robustness, Mu2IsTheAlgebraicConnectivityWhereWeightsAreEqual) {
  EXPECT_NEAR(mu2("ring", 16), 2 - 2 * std::cos(2 * std::numbers::pi / 16), 1e-12);
  EXPECT_NEAR(mu2("torus:4x4", 16), 2, 1e-12);
  EXPECT_NEAR(mu2("hypercube", 32), 2, 1e-12);
  EXPECT_NEAR(mu2("complete", 16), 16, 1e-12);
  EXPECT_NEAR(mu2("path", 9), 2 - 2 * std::cos(std::numbers::pi / 9), 1e-12);
  EXPECT_NEAR(mu2("torus:4x4", 16, "lazy"), 2, 1e-12);
  EXPECT_NEAR(mu2("ring", 600), 2 - 2 * std::cos(2 * std::numbers::pi / 600), 1e-9);
}

// Of the complete graph n - b is left to the honest: 4 b < n - b, 8 b < n - b, 2 b < n - b.
TEST(Robustness, TheCompleteGraphBearsAFifthANinthAndAThird) {
  for (const Node nodes : {2U, 15U, 16U, 45U, 46U, 100U}) {
    const auto found = robustness(*make("complete", nodes));
    EXPECT_EQ(found->clip_sure, (nodes - 1) / 5) << nodes;
    EXPECT_EQ(found->remove_sure, (nodes - 1) / 9) << nodes;
    EXPECT_EQ(found->possible, (nodes - 1) / 3) << nodes;
  }
}

// A star's centre has one weight for all: 1/n and mu2 1 of these. A complete graph with one link
// lighter is no longer one of equal weights.
TEST(Robustness, UnequalWeightsCostTheRuleClip) {
  EXPECT_NEAR(mu2("star", 9), 1, 1e-12);
  const auto even = robustness(*make("watts-strogatz:k=14,beta=0", 16));
  const auto uneven = robustness(*make("erdos-renyi:p=0.9", 16));
  EXPECT_EQ(even->clip_sure, 2U);
  EXPECT_LT(7 * uneven->clip_sure, uneven->mu2.value);
}

TEST(Robustness, SparseGraphsBearNobody) {
  for (const char* spec : {"ring", "torus:4x4", "hypercube"}) {
    const auto found = robustness(*make(spec, 16));
    EXPECT_EQ(found->clip_sure, 0U) << spec;
    EXPECT_EQ(found->possible, 0U) << spec;
  }
}

TEST(Robustness, IsNotKnownWhereEdgesChangeOrGoOneWay) {
  for (const char* spec : {"exponential", "one-peer-exponential", "epidemic:s=3"}) {
    EXPECT_FALSE(robustness(*make(spec, 16))) << spec;
  }
  EXPECT_FALSE(robustness(*make("ring", 1)));
}

// clip: 2 bad + 1 neighbours; remove: bad + 1.
TEST(Robustness, WithTooFewNeighboursNothingIsMixed) {
  const auto cut_off = [](const std::string& spec, bool clips, std::size_t bad) {
    return nodes_cut_off(*make(spec, 16)->at(0), clips, bad);
  };
  EXPECT_EQ(cut_off("ring", true, 1), 16U);
  EXPECT_EQ(cut_off("ring", false, 1), 0U);
  EXPECT_EQ(cut_off("ring", false, 2), 16U);
  EXPECT_EQ(cut_off("torus:4x4", true, 1), 0U);
  EXPECT_EQ(cut_off("torus:4x4", true, 2), 16U);
  EXPECT_EQ(cut_off("torus:4x4", false, 3), 0U);
  EXPECT_EQ(cut_off("path", false, 1), 2U) << "the ends";
  EXPECT_EQ(cut_off("one-peer-exponential", false, 1), 16U);
}

}  // namespace
}  // namespace starling::topologies
