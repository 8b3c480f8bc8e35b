// SPDX-License-Identifier: Apache-2.0
// Static topologies and those that repeat: their weights, and where they are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"
#include "tests/topologies/dense.h"

namespace starling::topologies {
namespace {

using starling::testing::dense;
using starling::testing::distance_from_mean;
using starling::testing::product;
using starling::testing::refusal;
using starling::testing::topology;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Classic, OneNodeIsPossibleEverywhere) {
  for (const char* spec :
       {"ring", "directed-ring", "path", "star", "complete", "torus", "torus:1x1", "hypercube",
        "exponential", "one-peer-exponential", "p-peer-exponential:p=3", "one-peer-hypercube",
        "hyper-hypercube:k=2", "base-graph:k=1"}) {
    const auto one = topology(spec, 1);
    EXPECT_EQ(one->at(7)->self(0), 1) << spec;
    EXPECT_EQ(one->at(0)->messages(), 0U) << spec;
    EXPECT_EQ(one->period(), 1U) << spec;
  }
}

TEST(Classic, AllAreDoublyStochasticWithTheDegreesOfTheirDefinition) {
  struct Case {
    const char* spec;
    Node nodes;
    std::uint64_t messages;
    bool directed;
  };
  for (const Case& c : {Case{"ring", 2, 2, false},
                        {"ring", 3, 6, false},
                        {"ring", 10, 20, false},
                        {"directed-ring", 5, 5, true},
                        {"path", 5, 8, false},
                        {"star", 9, 16, false},
                        {"complete", 7, 42, false},
                        {"torus", 12, 48, false},
                        {"torus:3x4", 12, 48, false},
                        {"hypercube", 16, 64, false},
                        {"exponential", 6, 18, true},
                        {"exponential", 3, 6, false},
                        {"exponential", 100, 700, true},
                        {"one-peer-exponential", 8, 8, true},
                        {"p-peer-exponential:p=2", 9, 18, true},
                        {"p-peer-exponential:p=4", 5, 20, false}}) {
    const auto made = topology(c.spec, c.nodes);
    EXPECT_EQ(made->directed(), c.directed) << c.spec;
    EXPECT_EQ(made->at(0)->messages(), c.messages) << c.spec;
    for (std::uint64_t t = 0; t < made->period(); ++t) {
      EXPECT_TRUE(made->at(t)->doubly_stochastic()) << c.spec;
    }
    EXPECT_EQ(made->at(0)->symmetric(), !c.directed) << c.spec;
  }
}

TEST(Classic, WeightsAreThoseOfTheDefinition) {
  EXPECT_DOUBLE_EQ(topology("ring", 5)->at(0)->self(2), 1.0 / 3);
  EXPECT_DOUBLE_EQ(topology("ring", 2)->at(0)->self(0), 0.5);
  EXPECT_DOUBLE_EQ(topology("path", 5)->at(0)->self(0), 2.0 / 3);
  EXPECT_DOUBLE_EQ(topology("star", 8)->at(0)->self(3), 1 - 1.0 / 8);
  EXPECT_DOUBLE_EQ(topology("torus", 16)->at(0)->self(5), 0.2);
  const auto exponential = topology("exponential", 6)->at(0);
  EXPECT_THAT(exponential->receivers(5),
              ElementsAre(Weight{0, 0.25}, Weight{1, 0.25}, Weight{3, 0.25}));
}

TEST(Classic, PlainTorusIsTheMostSquare) {
  EXPECT_EQ(topology("torus", 64)->name(), "torus:8x8");
  EXPECT_EQ(topology("torus", 24)->name(), "torus:4x6");
  EXPECT_EQ(topology("torus:6x4", 24)->name(), "torus:6x4");
}

TEST(Classic, OnePeerExponentialIsExactAtPowersOfTwoOnly) {
  for (const Node n : {1U, 2U, 4U, 8U, 16U, 64U}) {
    const auto made = topology("one-peer-exponential", n);
    EXPECT_LT(distance_from_mean(product(*made, made->period())), 1e-15) << n;
  }
  EXPECT_NEAR(distance_from_mean(product(*topology("one-peer-exponential", 6), 3)), 1.0 / 12,
              1e-12);
  EXPECT_NEAR(distance_from_mean(product(*topology("one-peer-exponential", 12), 4)), 1.0 / 24,
              1e-12);
}

TEST(Classic, OthersThatAreExactAfterAPeriod) {
  struct Case {
    const char* spec;
    Node nodes;
    std::uint64_t period;
  };
  for (const Case& c : {Case{"one-peer-hypercube", 32, 5},
                        {"p-peer-exponential:p=2", 27, 3},
                        {"p-peer-exponential:p=1", 16, 4},
                        {"p-peer-exponential:p=4", 25, 2},
                        {"hyper-hypercube:k=2", 6, 2},
                        {"hyper-hypercube:k=4", 60, 3}}) {
    const auto made = topology(c.spec, c.nodes);
    EXPECT_EQ(made->period(), c.period) << c.spec;
    EXPECT_LT(distance_from_mean(product(*made, c.period)), 1e-15) << c.spec;
  }
}

TEST(Classic, StepsRepeatAndAreShared) {
  const auto made = topology("one-peer-exponential", 8);
  EXPECT_EQ(made->at(1), made->at(4));
  EXPECT_NE(dense(*made->at(1)), dense(*made->at(2)));
}

TEST(Classic, RefusalsSayWhatIsPossible) {
  const auto impossible = [](const char* spec, Node nodes) {
    const Error error = refusal({.spec = spec, .nodes = nodes});
    EXPECT_EQ(error.code(), "topology-impossible") << spec;
    return error.message();
  };
  EXPECT_THAT(impossible("hypercube", 12), HasSubstr("8 or 16"));
  EXPECT_THAT(impossible("torus", 7), HasSubstr("base-graph"));
  EXPECT_THAT(impossible("torus:8x8", 63), HasSubstr("64"));
  EXPECT_THAT(impossible("torus:2x8", 16), HasSubstr("at least 3"));
  EXPECT_THAT(impossible("hyper-hypercube:k=1", 6), HasSubstr("base-graph:k=1"));
  EXPECT_THAT(impossible("ring", 0), HasSubstr("at least one"));
  EXPECT_THAT(impossible("complete", 100'000), HasSubstr("1e+10 messages"));
}

TEST(Classic, SpecsThatAreWrongNameWhatIsKnown) {
  const auto wrong = [](TopologyOptions options) {
    options.nodes = 12;
    const Error error = refusal(options);
    EXPECT_EQ(error.code(), "topology-spec") << options.spec;
    return error.message();
  };
  EXPECT_THAT(wrong({.spec = "rign"}), HasSubstr("did you mean 'ring'?"));
  EXPECT_THAT(wrong({.spec = "ring:k=2"}), HasSubstr("takes no parameters"));
  EXPECT_THAT(wrong({.spec = "base-graph:q=2"}), HasSubstr("its keys are k"));
  EXPECT_THAT(wrong({.spec = "base-graph:k=0"}), HasSubstr("'0'"));
  EXPECT_THAT(wrong({.spec = "torus:3*4"}), HasSubstr("torus:8x8"));
  EXPECT_THAT(wrong({.spec = "ring", .mixing = "metropolos"}), HasSubstr("'metropolis'"));
}

TEST(Classic, EverySpecStandsInTheTable) {
  std::ifstream file(testing::source_root() / "topologies/README.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::string known = refusal({.spec = "?", .nodes = 1}).message();
  known = known.substr(known.find("there are ") + 10);
  std::size_t rows = 0;
  while (!known.empty()) {
    const std::size_t end = known.find_first_of(", ");
    const std::string name = known.substr(0, end);
    known.erase(0, end == known.npos ? end : known.find_first_not_of(", ", end));
    if (name == "and") continue;
    EXPECT_THAT(page, HasSubstr("| `" + name)) << name;
    ++rows;
  }
  EXPECT_GE(rows, 23U);
}

TEST(Classic, ManyNodesStayStochastic) {
  for (const char* spec : {"star", "path", "one-peer-exponential"}) {
    EXPECT_TRUE(topology(spec, 2'000'000)->at(0)->doubly_stochastic()) << spec;
  }
  EXPECT_TRUE(topology("complete", 1500)->at(0)->symmetric());
  EXPECT_EQ(refusal({.spec = "hypercube", .nodes = 1U << 23}).code(), "topology-impossible");
  EXPECT_EQ(refusal({.spec = "ring", .nodes = 10'000'001}).code(), "topology-impossible");
}

TEST(MixingRules, AreLaidOnTheSameMessages) {
  for (const std::string_view rule : kMixingRules) {
    const auto star = topology({.spec = "star", .nodes = 5, .mixing = std::string(rule)})->at(0);
    EXPECT_EQ(star->messages(), 8U) << rule;
    EXPECT_EQ(star->row_stochastic(), rule != "push") << rule;
    EXPECT_EQ(star->column_stochastic(), rule != "uniform") << rule;
    EXPECT_EQ(star->symmetric(), rule != "uniform" && rule != "push") << rule;
  }
  const auto self = [](const char* rule, Node node) {
    return topology({.spec = "star", .nodes = 5, .mixing = rule})->at(0)->self(node);
  };
  EXPECT_DOUBLE_EQ(self("metropolis", 0), 0.2);
  EXPECT_DOUBLE_EQ(self("uniform", 1), 0.5);
  EXPECT_DOUBLE_EQ(self("push", 0), 0.2);
  EXPECT_DOUBLE_EQ(self("push", 1), 0.5);
  EXPECT_DOUBLE_EQ(self("max-degree", 1), 0.8);
  EXPECT_DOUBLE_EQ(self("lazy", 0), 0.6);
}

// What push-sum wants where the graph is neither undirected nor regular: shares of what one sends.
TEST(MixingRules, PushGivesEqualSharesToAllReceiversOfADrawnDirectedStep) {
  const auto drawn = topology({.spec = "epidemic:s=3,kind=local", .nodes = 10, .mixing = "push"});
  const auto step = drawn->at(7);
  EXPECT_TRUE(step->column_stochastic());
  EXPECT_FALSE(step->row_stochastic());
  for (Node i = 0; i < 10; ++i) {
    EXPECT_EQ(step->self(i), 0.25);
    for (const Weight& receiver : step->receivers(i)) EXPECT_EQ(receiver.weight, 0.25);
  }
}

TEST(MixingRules, ApplyToEveryStep) {
  const auto lazy = topology({.spec = "base-graph:k=1", .nodes = 6, .mixing = "lazy"});
  EXPECT_DOUBLE_EQ(lazy->at(1)->self(1), 1 - 1.0 / 3);
}

TEST(UnionGraph, HasEveryEdgeOfAPeriod) {
  const auto made = union_graph(*topology("one-peer-exponential", 8));
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->directed());
  EXPECT_THAT(made->successors(7), ElementsAre(0, 1, 3));
  const auto base = union_graph(*topology("base-graph:k=1", 6));
  ASSERT_TRUE(base);
  EXPECT_EQ(base->edges(), 7U);
}

}  // namespace
}  // namespace starling::topologies
