// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "core/base/digest.h"
#include "core/base/rng.h"
#include "gossip/simulation/simulation.h"
#include "topologies/spectral_report.h"

int main() {
  starling::Rng rng({.seed = 1, .purpose = starling::Purpose::kTest});
  std::string text = std::to_string(rng.next_u64());
  std::cout << "starling::base says " << starling::sha256(starling::as_bytes(text)).hex() << '\n';

  const auto topology =
      starling::topologies::Topology::make({.spec = "base-graph:k=1", .nodes = 6});
  if (!topology) return 1;
  const auto report = starling::topologies::analyse(**topology);
  if (!report || !report->finite_time) return 1;
  std::cout << "starling::topologies mixes exactly in " << *report->finite_time << " steps\n";

  starling::gossip::NetOptions options;
  options.topology.nodes = 6;
  options.data.dataset = "synthetic:rows=60,features=4,classes=2";
  options.run.steps = 10;
  const auto experiment = starling::gossip::prepare(options);
  if (!experiment) return 1;
  const auto result = starling::gossip::simulate(*experiment, 1, starling::SystemClock(), {});
  if (!result) return 1;
  std::cout << "starling::gossip_simulation made " << result->totals.node_steps << " node steps\n";
}
