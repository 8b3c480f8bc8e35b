// SPDX-License-Identifier: Apache-2.0
// Where the nodes of a graph stand in a drawing.
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace starling::report {

struct Position {
  double x = 0;
  double y = 0;  // downwards
};

enum class Layout {
  kCircle,     // in order, clockwise from the top
  kLine,       // in a row; to and fro in several rows where they are many
  kGrid,       // rows of `columns`
  kStar,       // the node with the most edges in the middle of a circle
  kHypercube,  // a cube, or one inside a larger one; a circle beyond four dimensions
  kGroups,     // each group a small circle, all of them on a large one
  kForce,      // neighbours near, others apart (Fruchterman and Reingold 1991); O(nodes^2)
};

struct LayoutOptions {
  Layout layout = Layout::kCircle;
  graph::Node columns = 1;          // kGrid: at least 1
  std::vector<graph::Node> groups;  // kGroups: of each node, from 0, without gaps
};

// One a node, in the square from 0 to 1 in both directions, touching two opposite sides at least
// (one node: in the middle). The same graph gives the same points on every run.
std::vector<Position> layout_nodes(const graph::Graph& graph, const LayoutOptions& options);

}  // namespace starling::report
