// SPDX-License-Identifier: Apache-2.0
// Input: the text of an edge list.
#include <string_view>

#include "core/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "topologies/edge_list.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool directed : {false, true}) {
    auto list = topologies::parse_edge_list(text, directed);
    if (!list) {
      STARLING_CHECK(list.error().code() == "edge-list" && !list.error().message().empty());
      continue;
    }
    STARLING_CHECK(list->weights.empty() || list->weights.size() == list->edges.size());
    STARLING_CHECK(graph::Graph::make(list->nodes, directed, std::move(list->edges)));
  }
  return 0;
}
