// SPDX-License-Identifier: Apache-2.0
// Input: a byte for the number of nodes, then a topology's spec.
#include <string>

#include "core/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "topologies/topology.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  if (size == 0) return 0;
  topologies::TopologyOptions options{
      .spec = std::string(reinterpret_cast<const char*>(data + 1), size - 1),
      .nodes = data[0] % 65U};
  if (options.spec.starts_with("file:")) return 0;  // the fuzzer of edge lists has these
  for (const std::string_view rule : topologies::kMixingRules) {
    options.mixing = rule;
    const auto topology = topologies::Topology::make(options);
    if (!topology) {
      STARLING_CHECK(!topology.error().code().empty() && !topology.error().message().empty());
      continue;
    }
    for (const std::uint64_t step : {0ULL, 1ULL, 7ULL}) (*topology)->at(step);
    // A name means what it was made from.
    const std::string name = (*topology)->name();
    topologies::TopologyOptions again = options;
    again.spec = name;
    const auto same = topologies::Topology::make(again);
    STARLING_CHECK(same && (*same)->name() == name);
  }
  return 0;
}
