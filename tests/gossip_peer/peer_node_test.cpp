// SPDX-License-Identifier: Apache-2.0
// Whole peers over TLS on one machine: the simulation's bits without faults, and what they do when
// members stop, come back, are revoked, or hold a roster that expired.
#include "gossip/peer/peer_node.h"

#include <gtest/gtest.h>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerCluster;
using starling::testing::simulated_models;

struct Case {
  std::string algorithm;
  std::string topology;
  std::uint32_t nodes = 4;
  int local_steps = 1;
  std::string mixing = "own";
};

class SameBits : public ::testing::TestWithParam<Case> {};

TEST_P(SameBits, AsTheSimulation) {
  const Case& c = GetParam();
  NetOptions options = testing::small_network(c.topology, c.nodes, c.algorithm);
  options.train.train.local_steps = c.local_steps;
  options.topology.mixing = c.mixing;
  PeerCluster cluster(options);
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until_finished();
  const auto expected = simulated_models(cluster.experiment);
  for (std::size_t i = 0; i < cluster.peers.size(); ++i) {
    EXPECT_EQ(cluster.model(i), expected[i]) << cluster.peers[i]->name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    PeerNode, SameBits,
    ::testing::Values(Case{"dpsgd", "ring"}, Case{"dpsgd", "exponential", 6, 3},
                      Case{"dpsgd", "one-peer-exponential", 4}, Case{"sgp", "exponential", 5},
                      Case{"gradient-tracking", "ring", 4}, Case{"choco", "ring", 4},
                      Case{"d2", "complete", 3, 1, "lazy"}, Case{"epidemic", "epidemic:s=2", 5},
                      Case{"qg-dsgdm", "ring", 4}, Case{"relaysgd", "path", 4},
                      Case{"diloco", "ring", 4, 5}, Case{"detag", "ring", 4}),
    [](const auto& instance) {
      std::string name = instance.param.algorithm + "_" + instance.param.topology;
      for (char& c : name) {
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      }
      return name;
    });

}  // namespace
}  // namespace starling::gossip
