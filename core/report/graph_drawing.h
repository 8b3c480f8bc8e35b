// SPDX-License-Identifier: Apache-2.0
// Graphs as SVG figures: thin grey edges, filled nodes. Colours are of medium lightness, so that a
// figure reads on white paper and on a dark page alike.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/report/graph_layout.h"

namespace starling::report {

struct GraphDrawing {
  // An edge between opposite sides of a grid is drawn as two ends.
  LayoutOptions nodes;
  std::string title;              // for readers that do not see; not drawn
  std::string caption;            // a line below, or none
  std::vector<bool> hollow = {};  // [nodes], or empty; not where only a few nodes are drawn
};

// One step of a topology that varies in time.
struct Panel {
  const graph::Graph& graph;
  std::string label;  // a line below the panel, or none
};

// A standalone SVG document, that may also stand in an HTML page. Nodes carry their numbers up to
// 32 nodes. Beyond 2,000 nodes or 20,000 edges only the edges of a few nodes are drawn, which the
// caption says then. kForce falls back to a circle beyond 500 nodes.
std::string draw_graph(const graph::Graph& graph, const GraphDrawing& options);

// Panels side by side, four in a row, nodes at the same places in all of them: those of the first
// graph. Requires: at least one panel, all of the same number of nodes.
std::string draw_graphs(std::span<const Panel> panels, const GraphDrawing& options);

}  // namespace starling::report
