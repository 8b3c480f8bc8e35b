// SPDX-License-Identifier: Apache-2.0
// Topologies that are drawn, once or anew for every step: invariants, determinism, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/graph/traversal.h"
#include "tests/topologies/dense.h"
#include "topologies/random_graphs.h"

namespace starling::topologies {
namespace {

using starling::testing::degree_max;
using starling::testing::dense;
using starling::testing::refusal;
using starling::testing::topology;
using ::testing::HasSubstr;

Rng rng(std::uint64_t seed) { return Rng({.seed = seed, .purpose = Purpose::kTest}); }

TEST(RandomGraphs, RegularOnesAreSimpleAndRegular) {
  for (const auto& [n, d] :
       {std::pair(10U, 3U), {50U, 4U}, {6U, 5U}, {20U, 16U}, {200U, 100U}, {9U, 0U}, {1000U, 7U}}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Rng random = rng(seed);
      std::optional<std::vector<Edge>> edges;
      while (!edges) edges = draw_regular(n, d, random);
      const auto graph = graph::Graph::make(n, false, *edges);
      ASSERT_TRUE(graph) << graph.error().message();
      for (Node i = 0; i < n; ++i) ASSERT_EQ(graph->successors(i).size(), d);
    }
  }
}

// Each labelled 2-regular graph on 5 nodes is a cycle; all 12 are as likely.
TEST(RandomGraphs, RegularOnesAreNearlyUniform) {
  std::map<std::vector<Edge>, int> seen;
  Rng random = rng(3);
  int draws = 0;
  while (draws < 12'000) {
    auto edges = draw_regular(5, 2, random);
    if (!edges) continue;
    std::ranges::sort(*edges);
    ++seen[*edges];
    ++draws;
  }
  EXPECT_EQ(seen.size(), 12U);
  for (const auto& [edges, count] : seen) EXPECT_NEAR(count, 1000, 130);
}

TEST(RandomGraphs, ErdosRenyiHasEachEdgeWithItsProbability) {
  constexpr int kDraws = 4000;
  std::map<Edge, int> seen;
  Rng random = rng(1);
  for (int draw = 0; draw < kDraws; ++draw) {
    const auto edges = draw_erdos_renyi(8, 0.3, random);
    EXPECT_TRUE(std::ranges::is_sorted(edges));
    for (const Edge& edge : edges) ++seen[edge];
  }
  EXPECT_EQ(seen.size(), 28U);
  // Five standard deviations of a binomial count.
  for (const auto& [edge, count] : seen) EXPECT_NEAR(count, 0.3 * kDraws, 5 * 29);
  EXPECT_TRUE(draw_erdos_renyi(10, 0, random).empty());
  EXPECT_EQ(draw_erdos_renyi(10, 1, random).size(), 45U);
  EXPECT_TRUE(draw_erdos_renyi(10, 1e-300, random).empty());
}

TEST(RandomGraphs, WattsStrogatzKeepsItsNumberOfEdges) {
  for (const double beta : {0.0, 0.1, 1.0}) {
    Rng random = rng(1);
    const auto edges = draw_watts_strogatz(50, 6, beta, random);
    EXPECT_EQ(edges.size(), 150U);
    EXPECT_TRUE(graph::Graph::make(50, false, edges));
    int elsewhere = 0;
    for (const Edge& edge : edges) {
      const Node distance = (edge.to + 50 - edge.from) % 50;
      elsewhere += distance > 3 && distance < 47 ? 1 : 0;
    }
    EXPECT_NEAR(elsewhere, beta * 150 * 43 / 49, 20);
  }
  Rng random = rng(1);
  EXPECT_TRUE(graph::Graph::make(5, false, draw_watts_strogatz(5, 4, 1, random))) << "complete";
}

TEST(RandomGraphs, BarabasiAlbertGrowsHubs) {
  Rng random = rng(1);
  const auto graph = graph::Graph::make(2000, false, draw_barabasi_albert(2000, 2, random));
  ASSERT_TRUE(graph) << graph.error().message();
  EXPECT_EQ(graph->edges(), 2U + 2 * (2000 - 3));
  EXPECT_TRUE(is_connected(*graph));
  std::size_t largest = 0;
  for (Node i = 0; i < 2000; ++i) largest = std::max(largest, graph->successors(i).size());
  EXPECT_GT(largest, 40U) << "about m sqrt(n) = 89";
}

TEST(Random, StaticOnesAreConnectedAndDoublyStochastic) {
  for (const char* spec :
       {"random-regular:d=4", "erdos-renyi:p=0.4", "watts-strogatz:k=4,beta=0.3",
        "barabasi-albert:m=2", "equistatic:m=4,kind=directed", "equistatic:m=4,kind=undirected"}) {
    for (const Node n : {12U, 60U, 301U}) {
      const auto made = topology({.spec = spec, .nodes = n, .seed = 7});
      EXPECT_TRUE(made->at(0)->doubly_stochastic()) << spec;
      EXPECT_EQ(made->at(0)->symmetric(), made->name().find("kind=directed") == std::string::npos)
          << spec;
      if (made->name().starts_with("equistatic")) continue;
      EXPECT_TRUE(is_connected(*union_graph(*made))) << spec;
    }
  }
}

TEST(Random, SeedsDecideAndNothingElse) {
  for (const char* spec : {"random-regular:d=4", "erdos-renyi:p=0.2", "watts-strogatz",
                           "barabasi-albert", "equistatic", "equidyn", "random-matching",
                           "epidemic:s=4", "epidemic:s=4,kind=local", "d-cliques:m=5"}) {
    const auto one = topology(spec, 40, 1);
    const auto again = topology(one->name(), 40, 1);
    const auto other = topology(spec, 40, 2);
    EXPECT_EQ(one->name(), again->name());
    for (const std::uint64_t t : {0ULL, 3ULL, 1ULL << 40}) {
      EXPECT_EQ(dense(*one->at(t)), dense(*again->at(t))) << spec;
      EXPECT_NE(dense(*one->at(t)), dense(*other->at(t))) << spec;
      if (one->time_varying()) {
        EXPECT_NE(dense(*one->at(t)), dense(*one->at(t + 1))) << spec;
      }
    }
    EXPECT_EQ(one->period(), one->time_varying() ? 0U : 1U) << spec;
  }
}

TEST(Drawn, MatchingsPairEverybodyOnce) {
  for (const Node n : {2U, 3U, 10U, 11U}) {
    const auto made = topology("random-matching", n);
    for (std::uint64_t t = 0; t < 20; ++t) {
      EXPECT_EQ(made->at(t)->messages(), n / 2 * 2);
      EXPECT_LE(degree_max(*made->at(t)), 1U);
      EXPECT_TRUE(made->at(t)->symmetric() && made->at(t)->doubly_stochastic());
    }
  }
}

TEST(Drawn, EpidemicOracleIsRegularEveryStep) {
  const auto made = topology("epidemic:s=7", 96);
  EXPECT_FALSE(made->directed());
  for (std::uint64_t t = 0; t < 10; ++t) {
    const auto matrix = made->at(t);
    EXPECT_TRUE(matrix->symmetric() && matrix->doubly_stochastic());
    for (Node i = 0; i < 96; ++i) EXPECT_EQ(matrix->senders(i).size(), 7U);
    EXPECT_DOUBLE_EQ(matrix->self(5), 1.0 / 8);
  }
}

TEST(Drawn, EpidemicLocalPushesToOthers) {
  const auto made = topology("epidemic:s=4,kind=local", 16);
  EXPECT_TRUE(made->directed());
  bool uneven = false;
  for (std::uint64_t t = 0; t < 10; ++t) {
    const auto matrix = made->at(t);
    EXPECT_TRUE(matrix->row_stochastic());
    uneven = uneven || !matrix->column_stochastic();
    for (Node i = 0; i < 16; ++i) {
      EXPECT_EQ(matrix->receivers(i).size(), 4U);
      EXPECT_DOUBLE_EQ(matrix->self(i), 1 / (1 + static_cast<double>(matrix->senders(i).size())));
    }
  }
  EXPECT_TRUE(uneven);
  EXPECT_EQ(topology("epidemic:s=3,kind=local", 4)->at(0)->messages(), 12U);
}

TEST(Drawn, EquiDynIsDoublyStochastic) {
  for (const char* kind : {"directed", "undirected"}) {
    const auto made = topology(std::string("equidyn:kind=") + kind, 21);
    EXPECT_EQ(made->directed(), std::string_view(kind) == "directed");
    for (std::uint64_t t = 0; t < 10; ++t) {
      EXPECT_TRUE(made->at(t)->doubly_stochastic());
      EXPECT_LE(degree_max(*made->at(t)), 1U);
    }
  }
}

TEST(Random, OneNodeIsPossible) {
  for (const char* spec : {"random-regular:d=4", "erdos-renyi:p=0.1", "watts-strogatz",
                           "barabasi-albert:m=2", "equistatic", "equidyn", "random-matching",
                           "epidemic:s=7", "epidemic:kind=local", "d-cliques:m=10"}) {
    EXPECT_EQ(topology(spec, 1)->at(3)->self(0), 1) << spec;
  }
}

// The first step of some seed is regular by luck, as metropolis would want; not all steps are.
TEST(Drawn, MetropolisIsRefusedWhereStepsAreDirected) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Error error = refusal(
        {.spec = "epidemic:s=1,kind=local", .nodes = 3, .seed = seed, .mixing = "metropolis"});
    EXPECT_EQ(error.code(), "topology-spec");
  }
  EXPECT_TRUE(Topology::make({.spec = "epidemic:s=2", .nodes = 9, .mixing = "metropolis"}));
}

TEST(Random, RefusalsSayWhatIsPossible) {
  const auto impossible = [](const char* spec, Node nodes) {
    const Error error = refusal({.spec = spec, .nodes = nodes});
    EXPECT_EQ(error.code(), "topology-impossible") << spec;
    return error.message();
  };
  EXPECT_THAT(impossible("random-regular:d=3", 9), HasSubstr("d=2 or d=4"));
  EXPECT_THAT(impossible("random-regular:d=9", 9), HasSubstr("less than"));
  EXPECT_THAT(impossible("epidemic:s=7", 7), HasSubstr("less than"));
  EXPECT_THAT(impossible("epidemic:s=7", 9), HasSubstr("s=6 or s=8"));
  EXPECT_THAT(impossible("erdos-renyi:p=0.001", 100), HasSubstr("p above ln(nodes)"));
  EXPECT_THAT(impossible("erdos-renyi:p=0.1", 100'000), HasSubstr("messages a step"));
  EXPECT_THAT(impossible("watts-strogatz:k=8", 8), HasSubstr("less than"));
  EXPECT_THAT(impossible("barabasi-albert:m=5", 5), HasSubstr("less than"));
  EXPECT_EQ(refusal({.spec = "watts-strogatz:k=3", .nodes = 9}).code(), "topology-spec");
  EXPECT_EQ(refusal({.spec = "epidemic:s=2,kind=remote", .nodes = 9}).code(), "topology-spec");
}

}  // namespace
}  // namespace starling::topologies
