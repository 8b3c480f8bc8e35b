// SPDX-License-Identifier: Apache-2.0
#include "core/report/graph_drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace starling::report {
namespace {

using graph::Edge;
using graph::Graph;
using graph::Node;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Graph cycle(Node nodes, bool directed = false) {
  std::vector<Edge> edges;
  for (Node i = 0; i < nodes; ++i) edges.push_back({i, (i + 1) % nodes});
  return Graph::make(nodes, directed, std::move(edges)).value();
}

std::size_t count(const std::string& text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
  return found;
}

double distance(const Position& a, const Position& b) { return std::hypot(a.x - b.x, a.y - b.y); }

TEST(GraphLayout, EveryLayoutFillsTheUnitSquare) {
  const Graph graph = cycle(16);
  for (const Layout layout : {Layout::kCircle, Layout::kLine, Layout::kGrid, Layout::kStar,
                              Layout::kHypercube, Layout::kGroups, Layout::kForce}) {
    std::vector<Node> groups(16);
    for (Node i = 0; i < 16; ++i) groups[i] = i / 4;
    const auto points = layout_nodes(graph, {layout, 4, groups});
    ASSERT_EQ(points.size(), 16U);
    double left = 1, right = 0, top = 1, bottom = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      left = std::min(left, points[i].x);
      right = std::max(right, points[i].x);
      top = std::min(top, points[i].y);
      bottom = std::max(bottom, points[i].y);
      for (std::size_t j = 0; j < i; ++j) EXPECT_GT(distance(points[i], points[j]), 0.01);
    }
    EXPECT_GE(left, -1e-12);
    EXPECT_GE(top, -1e-12);
    EXPECT_NEAR(std::max(right - left, bottom - top), 1, 1e-9);
  }
}

TEST(GraphLayout, OneNodeStandsInTheMiddle) {
  const Graph one = Graph::make(1, false, {}).value();
  for (const Layout layout : {Layout::kCircle, Layout::kStar, Layout::kForce}) {
    const auto points = layout_nodes(one, {.layout = layout});
    EXPECT_DOUBLE_EQ(points[0].x, 0.5);
    EXPECT_DOUBLE_EQ(points[0].y, 0.5);
  }
}

TEST(GraphLayout, ForceKeepsNeighboursNear) {
  // Two triangles joined by an edge.
  const Graph graph =
      Graph::make(6, false, {{0, 1}, {1, 2}, {0, 2}, {3, 4}, {4, 5}, {3, 5}, {2, 3}}).value();
  const auto points = layout_nodes(graph, {.layout = Layout::kForce});
  EXPECT_LT(distance(points[0], points[1]), distance(points[0], points[4]));
  EXPECT_LT(distance(points[4], points[5]), distance(points[1], points[5]));
  const auto again = layout_nodes(graph, {.layout = Layout::kForce});
  EXPECT_EQ(points[3].x, again[3].x);
}

TEST(GraphDrawing, HasANodeAndALabelForEach) {
  const std::string svg = draw_graph(cycle(8), {.nodes = {}, .title = "a <ring> & more"});
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox="));
  EXPECT_THAT(svg, HasSubstr("<title>a &lt;ring&gt; &amp; more</title>"));
  EXPECT_EQ(count(svg, "<circle class=\"sg-n\""), 8U);
  EXPECT_EQ(count(svg, "class=\"sg-i\""), 8U);
  EXPECT_EQ(count(svg, "M"), 8U) << "a line an edge";
  EXPECT_THAT(svg, Not(HasSubstr("class=\"sg-a\"")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_EQ(count(svg, "<svg"), count(svg, "</svg>"));
  EXPECT_EQ(count(svg, "<g"), count(svg, "</g>"));
}

TEST(GraphDrawing, DirectedEdgesHaveHeads) {
  const std::string svg = draw_graph(cycle(8, true), {});
  EXPECT_EQ(count(svg, "Z"), 8U);
  EXPECT_THAT(svg, HasSubstr("class=\"sg-a\""));
}

TEST(GraphDrawing, ManyNodesHaveNoLabels) {
  EXPECT_EQ(count(draw_graph(cycle(33), {}), "class=\"sg-i\""), 0U);
}

TEST(GraphDrawing, EdgesAroundAGridAreTwoEnds) {
  // A row of four, closed: three edges and two ends.
  const std::string svg = draw_graph(cycle(4), {.nodes = {.layout = Layout::kGrid, .columns = 4}});
  EXPECT_EQ(count(svg, "M"), 5U);
}

TEST(GraphDrawing, PanelsShareTheirPlaces) {
  const Graph graph = cycle(6);
  const Graph empty = Graph::make(6, false, {}).value();
  const std::vector<Panel> panels{
      {graph, "step 0"}, {empty, "step 1"}, {graph, ""}, {graph, ""}, {graph, "step 4"}};
  const std::string svg = draw_graphs(panels, {.nodes = {}, .caption = "five steps"});
  EXPECT_EQ(count(svg, "<g transform"), 5U);
  EXPECT_THAT(svg, HasSubstr(">step 4</text>"));
  EXPECT_THAT(svg, HasSubstr(">five steps</text>"));
}

TEST(GraphDrawing, LargeGraphsShowAFewNodesAndSaySo) {
  const std::string svg = draw_graph(cycle(100'000), {.nodes = {.layout = Layout::kForce}});
  EXPECT_THAT(svg, HasSubstr("edges of 12 of 100000 nodes"));
  EXPECT_LT(svg.size(), 20'000U);
  EXPECT_THAT(draw_graph(cycle(600), {.nodes = {.layout = Layout::kForce}}),
              Not(HasSubstr("edges of")));
}

TEST(GraphDrawing, OneNodeIsDrawn) {
  const std::string svg = draw_graph(Graph::make(1, false, {}).value(), {});
  EXPECT_EQ(count(svg, "<circle class=\"sg-n\""), 1U);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace starling::report
