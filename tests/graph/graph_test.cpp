// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/graph/traversal.h"

namespace starling::graph {
namespace {

using ::testing::ElementsAre;

Graph make(Node nodes, bool directed, std::vector<Edge> edges) {
  auto graph = Graph::make(nodes, directed, std::move(edges));
  EXPECT_TRUE(graph) << graph.error().message();
  return *graph;
}

Graph cycle(Node nodes, bool directed = false) {
  std::vector<Edge> edges;
  for (Node i = 0; i < nodes; ++i) edges.push_back({i, (i + 1) % nodes});
  return make(nodes, directed, std::move(edges));
}

TEST(Graph, NeighboursAreAscendingInBothDirections) {
  const Graph graph = make(4, false, {{3, 1}, {0, 3}, {1, 0}});
  EXPECT_EQ(graph.edges(), 3U);
  EXPECT_THAT(graph.successors(3), ElementsAre(0, 1));
  EXPECT_THAT(graph.predecessors(1), ElementsAre(0, 3));
  EXPECT_TRUE(graph.successors(2).empty());
}

TEST(Graph, DirectedEdgesHaveADirection) {
  const Graph graph = make(3, true, {{2, 0}, {1, 0}, {0, 1}});
  EXPECT_EQ(graph.edges(), 3U);
  EXPECT_THAT(graph.predecessors(0), ElementsAre(1, 2));
  EXPECT_THAT(graph.successors(0), ElementsAre(1));
  EXPECT_TRUE(graph.predecessors(2).empty());
}

TEST(Graph, BadEdgesAreNamed) {
  const auto refused = [](Node nodes, bool directed, std::vector<Edge> edges) {
    const auto graph = Graph::make(nodes, directed, std::move(edges));
    EXPECT_FALSE(graph);
    EXPECT_EQ(graph.error().code(), "bad-graph");
    return graph.error().message();
  };
  EXPECT_EQ(refused(3, false, {{1, 1}}), "the edge 1-1 joins a node to itself");
  EXPECT_EQ(refused(3, false, {{1, 2}, {2, 1}}), "the edge 1-2 stands twice");
  EXPECT_EQ(refused(3, true, {{0, 3}}),
            "the edge 0-3 names a node that does not exist; the nodes are 0 to 2");
  EXPECT_EQ(refused(0, true, {}), "a graph needs at least one node");
  EXPECT_TRUE(Graph::make(3, true, {{1, 2}, {2, 1}}));
}

TEST(Graph, ConnectionFollowsDirections) {
  EXPECT_TRUE(is_connected(make(1, false, {})));
  EXPECT_FALSE(is_connected(make(2, false, {})));
  EXPECT_TRUE(is_connected(cycle(5, true)));
  EXPECT_FALSE(is_connected(make(3, true, {{0, 1}, {1, 2}})));
  EXPECT_FALSE(is_connected(make(3, true, {{1, 0}, {2, 1}})));
}

TEST(Graph, TreesAreConnectedAndWithoutCycle) {
  EXPECT_TRUE(is_tree(make(1, false, {})));
  EXPECT_TRUE(is_tree(make(4, false, {{0, 1}, {0, 2}, {2, 3}})));
  EXPECT_FALSE(is_tree(cycle(4)));
  EXPECT_FALSE(is_tree(make(4, false, {{0, 1}, {1, 2}, {2, 0}})));  // and 3 alone
  EXPECT_FALSE(is_tree(make(2, true, {{0, 1}})));
}

TEST(Graph, EvenCyclesAreBipartiteOddOnesNot) {
  EXPECT_THAT(*bipartition(cycle(6)), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_FALSE(is_bipartite(cycle(5)));
  EXPECT_FALSE(is_bipartite(cycle(5, true)));
  EXPECT_THAT(*bipartition(make(4, true, {{3, 2}, {1, 0}})), ElementsAre(0, 1, 0, 1));
}

TEST(Graph, DiameterIsTheLongestShortestPath) {
  EXPECT_EQ(diameter(make(1, false, {})), 0U);
  EXPECT_EQ(diameter(cycle(8)), 4U);
  EXPECT_EQ(diameter(cycle(8, true)), 7U);
  EXPECT_EQ(diameter(make(4, false, {{0, 1}, {1, 2}, {2, 3}})), 3U);
  EXPECT_EQ(diameter(make(3, false, {{0, 1}})), std::nullopt);
}

TEST(Graph, SweepsFindTheDiameterOfTreesAndNeverMore) {
  EXPECT_EQ(diameter_at_least(make(6, false, {{2, 0}, {2, 1}, {2, 3}, {3, 4}, {4, 5}})), 4U);
  EXPECT_EQ(diameter_at_least(cycle(9)), 4U);
  EXPECT_EQ(diameter_at_least(cycle(9, true)), 8U);
}

}  // namespace
}  // namespace starling::graph
