// SPDX-License-Identifier: Apache-2.0
// What a course among neighbours does with its algorithm's state, without faults.
#include "gossip/peer/neighbour_course.h"

#include <gtest/gtest.h>

#include "gossip/algorithms/mass_ledger.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/fake_network.h"

namespace starling::gossip {
namespace {

using starling::testing::FakeNetwork;

// The weight is the last number of the ledger's state.
std::uint64_t weight_of(const Course& course) {
  const Bytes state = course.state();
  return load_little<std::uint64_t>(state.data() + state.size() - sizeof(std::uint64_t));
}

// What is pushed before two neighbours know each other waits on the edge. Were it lost, each step
// would move the mean model by n / (sum of the weights left) of itself.
TEST(NeighbourCourse, NoMassIsLostBeforeNeighboursKnowEachOther) {
  for (const std::string topology : {"ring", "exponential"}) {
    FakeNetwork net(testing::small_network_of_steps(60, topology, 8, "sgp"), 3);
    for (protocol::Member member = 0; member < 8; ++member) net.start(member, member + 1);
    net.connect_all();
    net.run_to_rest();
    std::uint64_t sum = 0;
    for (const auto& peer : net.peers) {
      EXPECT_EQ(peer->finishes, 1);
      sum += weight_of(*peer->course);
    }
    EXPECT_EQ(sum, std::uint64_t{8} << 40) << topology;
  }
}

}  // namespace
}  // namespace starling::gossip
