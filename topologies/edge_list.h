// SPDX-License-Identifier: Apache-2.0
// Graphs from a text file of anybody's: a line an edge. The file is not trusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/graph.h"

namespace starling::topologies {

using graph::Edge;
using graph::Node;

// An edge is two node numbers, from 0, apart by blanks, a comma or a semicolon; a third column, if
// any, is the weight of the message from the first to the second. '#' begins a comment; a first
// line without digits is a header.
struct EdgeList {
  Node nodes = 0;  // the largest number, plus one
  std::vector<Edge> edges;
  std::vector<double> weights;  // one an edge, or none
};

// Fails with "edge-list", naming the line: not an edge, a loop, one that stands twice, a weight
// outside (0, 1], columns that come and go. `directed`: a-b and b-a are two edges.
[[nodiscard]] Result<EdgeList> parse_edge_list(std::string_view text, bool directed);
// Also fails where the file cannot be read or is larger than 1 GB.
[[nodiscard]] Result<EdgeList> read_edge_list(const std::string& path, bool directed);

}  // namespace starling::topologies
