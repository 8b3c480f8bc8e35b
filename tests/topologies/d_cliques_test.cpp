// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/graph/graph.h"
#include "tests/topologies/dense.h"

namespace starling::topologies {
namespace {

using starling::testing::refusal;
using starling::testing::topology;
using ::testing::HasSubstr;

using Counts = std::vector<std::vector<std::uint32_t>>;

// Node i holds 10 rows of class i mod `classes` alone.
Counts one_class_each(Node nodes, std::size_t classes) {
  Counts counts(nodes, std::vector<std::uint32_t>(classes));
  for (Node i = 0; i < nodes; ++i) counts[i][i % classes] = 10;
  return counts;
}

std::uint64_t edges(const std::string& spec, Node nodes) {
  return topology(spec, nodes)->at(0)->messages() / 2;
}

TEST(DCliques, EdgesAreThoseOfThePaper) {
  // 100 cliques of 45 edges; one edge for each pair of cliques: 98.1 % fewer than 499,500.
  EXPECT_EQ(edges("d-cliques:m=10,inter=full", 1000), 4500U + 4950U);
  EXPECT_EQ(edges("d-cliques:m=10,inter=ring", 1000), 4500U + 100U);
  // Ten groups of ten, each pair joined, and each pair of the ten.
  EXPECT_EQ(edges("d-cliques:m=10,inter=fractal", 1000), 4500U + 10 * 45 + 45);
  // Another 22 % fewer than full.
  EXPECT_NEAR(static_cast<double>(edges("d-cliques:m=10,inter=small-world", 1000)) / 9450, 0.78,
              0.01);
}

TEST(DCliques, EveryWayOfJoiningConnects) {
  for (const char* inter : {"ring", "fractal", "small-world", "full"}) {
    for (const Node n : {5U, 12U, 20U, 97U, 100U}) {
      const auto made = topology("d-cliques:m=10,inter=" + std::string(inter), n);
      EXPECT_TRUE(is_connected(*union_graph(*made))) << inter << " " << n;
      EXPECT_TRUE(made->at(0)->symmetric() && made->at(0)->doubly_stochastic()) << inter;
    }
  }
}

TEST(DCliques, JoiningIsSpreadOverTheNodesOfAClique) {
  const auto made = topology("d-cliques:m=10,inter=full", 1000);
  // 99 edges to other cliques on 10 nodes, beside 9 inside.
  for (Node i = 0; i < 1000; ++i) {
    EXPECT_NEAR(static_cast<double>(made->at(0)->receivers(i).size()), 9 + 9.9, 1.2);
  }
}

// With one class a node, a clique of ten can hold each of ten classes once: skew 0. Seen through
// mixing weights: no neighbour of the same class but over edges between cliques.
TEST(DCliques, CliquesHoldEveryClassOnce) {
  TopologyOptions options{.spec = "d-cliques:m=10,inter=ring", .nodes = 100};
  options.label_counts = one_class_each(100, 10);
  const auto same_class = [&](const Topology& made) {
    int pairs = 0;
    for (Node i = 0; i < 100; ++i) {
      for (const Weight& sender : made.at(0)->senders(i))
        pairs += sender.node % 10 == i % 10 ? 1 : 0;
    }
    return pairs / 2;
  };
  EXPECT_LE(same_class(*topology(options)), 10) << "at most the ten edges of the ring";
  options.label_counts.clear();
  EXPECT_GT(same_class(*topology(options)), 20) << "cliques at random hold many pairs";
}

TEST(DCliques, CountsMustFit) {
  TopologyOptions options{.spec = "d-cliques", .nodes = 20};
  options.label_counts = one_class_each(19, 10);
  EXPECT_THAT(refusal(options).message(), HasSubstr("label counts of 19 nodes, not of 20"));
  options.label_counts = one_class_each(20, 10);
  options.label_counts[3].pop_back();
  EXPECT_THAT(refusal(options).message(), HasSubstr("different numbers of classes"));
  options.label_counts.assign(20, {0, 0});
  EXPECT_TRUE(Topology::make(options)) << "nobody has rows";
}

TEST(DCliques, ManyCliquesAreQuick) {
  TopologyOptions options{.spec = "d-cliques:m=10", .nodes = 20'000};
  options.label_counts = one_class_each(20'000, 10);
  EXPECT_TRUE(Topology::make(options));
}

}  // namespace
}  // namespace starling::topologies
