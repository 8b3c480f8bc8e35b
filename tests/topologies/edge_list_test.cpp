// SPDX-License-Identifier: Apache-2.0
#include "topologies/edge_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"
#include "tests/topologies/dense.h"

namespace starling::topologies {
namespace {

using starling::testing::refusal;
using starling::testing::topology;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

EdgeList parse(std::string_view text, bool directed = false) {
  auto list = parse_edge_list(text, directed);
  EXPECT_TRUE(list) << list.error().message();
  return *list;
}

std::string refused(std::string_view text, bool directed = false) {
  const auto list = parse_edge_list(text, directed);
  EXPECT_FALSE(list) << text;
  EXPECT_EQ(list.error().code(), "edge-list");
  return list.error().message();
}

TEST(EdgeList, TakesBlanksCommasCommentsAndAHeader) {
  const EdgeList list = parse("# a graph\nfrom,to\n0,1\n\n1 2  # the second\r\n\t2;5");
  EXPECT_EQ(list.nodes, 6U);
  EXPECT_THAT(list.edges, ElementsAre(Edge{0, 1}, Edge{1, 2}, Edge{2, 5}));
  EXPECT_TRUE(list.weights.empty());
  EXPECT_THAT(parse("0 1 0.5\n1 2 1e-2\n").weights, ElementsAre(0.5, 0.01));
}

TEST(EdgeList, HostileLinesAreNamed) {
  EXPECT_THAT(refused("0 1\n1 x\n"), HasSubstr("line 2: 'x' is not the number of a node"));
  EXPECT_THAT(refused("0 -1\n"), HasSubstr("'-1'"));
  EXPECT_THAT(refused("0 99999999999999999999\n"), HasSubstr("line 1"));
  EXPECT_THAT(refused("0 10000000\n"), HasSubstr("0 to 9999999"));
  EXPECT_THAT(refused("0\n"), HasSubstr("line 1: an edge is two"));
  EXPECT_THAT(refused("0 1 0.5 7\n"), HasSubstr("line 1: an edge is two"));
  EXPECT_THAT(refused("3 3\n"), HasSubstr("node 3 is joined to itself"));
  EXPECT_THAT(refused("0 1\n1 2\n1 0\n"),
              HasSubstr("line 3: the edge 0-1 stood on line 1 already"));
  EXPECT_THAT(refused("0 1 0.5\n1 2\n"), HasSubstr("line 2: some edges have a weight"));
  EXPECT_THAT(refused("0 1\n1 2 0.5\n"), HasSubstr("line 2: some edges have a weight"));
  for (const char* weight : {"0", "-1", "1.5", "nan", "inf", "x"}) {
    EXPECT_THAT(refused(std::string("0 1 ") + weight), HasSubstr("the weight '")) << weight;
  }
  EXPECT_EQ(refused("# nothing\n"), "it has no edge");
  EXPECT_THAT(refused(std::string("0 \x01\x02\n")), HasSubstr("'?"
                                                              "?'"));
  EXPECT_EQ(parse("0 1\n1 0\n", true).edges.size(), 2U);
}

class EdgeFile : public ::testing::Test {
 protected:
  std::string write(std::string_view text) {
    const auto path = directory_.path() / "edges, of a graph.txt";
    std::ofstream(path) << text;
    return "file:" + path.string();
  }
  starling::testing::TemporaryDirectory directory_;
};

TEST_F(EdgeFile, IsMixedByMetropolisHastings) {
  const auto made = topology(write("0 1\n1 2\n1 3\n"), 0);
  EXPECT_EQ(made->nodes(), 4U);
  EXPECT_FALSE(made->directed());
  EXPECT_DOUBLE_EQ(made->at(0)->self(0), 0.75);
  EXPECT_EQ(topology(write("0 1\n"), 5)->at(0)->self(4), 1) << "alone";
}

TEST_F(EdgeFile, MayBeDirected) {
  const auto made = topology(write("0 1\n2 1\n1 0\n") + ",directed=true", 3);
  EXPECT_TRUE(made->directed());
  EXPECT_DOUBLE_EQ(made->at(0)->self(1), 1.0 / 3);
  EXPECT_DOUBLE_EQ(made->at(0)->self(2), 1);
  EXPECT_TRUE(made->at(0)->row_stochastic());
  EXPECT_FALSE(made->at(0)->column_stochastic());
}

TEST_F(EdgeFile, MayBringItsWeights) {
  const auto made = topology(write("0 1 0.25\n1 2 0.5\n"), 3);
  EXPECT_DOUBLE_EQ(made->at(0)->self(1), 0.25);
  EXPECT_TRUE(made->at(0)->symmetric());
  EXPECT_THAT(refusal({.spec = write("0 1 0.75\n1 2 0.5\n"), .nodes = 3}).message(),
              HasSubstr("gives node 1 more than 1 to mix, 1.25"));
}

TEST_F(EdgeFile, RefusalsNameTheFileAndTheLine) {
  const Error bad = refusal({.spec = write("0 1\nbroken\n"), .nodes = 3});
  EXPECT_EQ(bad.code(), "topology-spec");
  EXPECT_THAT(bad.message(), HasSubstr("line 2"));
  const Error few = refusal({.spec = write("0 7\n"), .nodes = 3});
  EXPECT_EQ(few.code(), "topology-impossible");
  EXPECT_THAT(few.message(), HasSubstr("it needs 8 nodes"));
  EXPECT_THAT(refusal({.spec = "file:/nowhere/at/all", .nodes = 3}).message(),
              HasSubstr("there is no file"));
  EXPECT_THAT(refusal({.spec = "file:" + directory_.path().string(), .nodes = 3}).message(),
              HasSubstr("there is no file"));
  EXPECT_THAT(refusal({.spec = "file:", .nodes = 3}).message(), HasSubstr("names no file"));
}

TEST_F(EdgeFile, MetropolisNeedsAnAnswerToEveryMessage) {
  const Error error = refusal(
      {.spec = write("0 1\n1 2\n0 2\n") + ",directed=true", .nodes = 3, .mixing = "metropolis"});
  EXPECT_THAT(error.message(), HasSubstr("take push, uniform"));
}

}  // namespace
}  // namespace starling::topologies
