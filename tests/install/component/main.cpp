// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "topologies/topology.h"

int main() {
  const auto topology = starling::topologies::Topology::make({.spec = "ring", .nodes = 6});
  if (!topology) return 1;
  std::cout << "starling::topologies made " << (*topology)->name() << '\n';
}
