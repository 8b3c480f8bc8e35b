// SPDX-License-Identifier: Apache-2.0
// What a protocol among neighbours does with its algorithm's state, without faults.
#include "gossip/peer/neighbour_protocol.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "gossip/algorithms/mass_ledger.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/fake_network.h"

namespace starling::gossip {
namespace {

using starling::testing::FakeNetwork;

// The weight is the last number of the ledger's state.
std::uint64_t weight_of(const TrainingProtocol& training) {
  const Bytes state = training.state();
  return load_little<std::uint64_t>(state.data() + state.size() - sizeof(std::uint64_t));
}

// What is pushed before two neighbours know each other waits on the edge. Were it lost, each step
// would move the mean model by n / (sum of the weights left) of itself.
TEST(NeighbourProtocol, NoMassIsLostBeforeNeighboursKnowEachOther) {
  for (const std::string topology : {"ring", "exponential"}) {
    FakeNetwork net(testing::small_network_of_steps(60, topology, 8, "sgp"), 3);
    for (protocol::Member member = 0; member < 8; ++member) net.start(member, member + 1);
    net.connect_all();
    net.run_to_rest();
    std::uint64_t sum = 0;
    for (const auto& peer : net.peers) {
      EXPECT_EQ(peer->finishes, 1);
      sum += weight_of(*peer->training);
    }
    EXPECT_EQ(sum, std::uint64_t{8} << 40) << topology;
  }
}

std::size_t lost_messages(const FakeNetwork& net) {
  std::size_t lost = 0;
  for (const auto& peer : net.peers) {
    lost += static_cast<std::size_t>(std::ranges::count_if(peer->said, [](const std::string& line) {
      return line.find("is lost") != std::string::npos;
    }));
  }
  return lost;
}

// One member is five times as slow as the others, so all that may wait for it does.
TEST(NeighbourProtocol, TwoMessagesOfANeighbourAreEnoughForASlowMember) {
  constexpr std::uint32_t kMembers = 16;
  for (const std::string topology : {"ring", "one-peer-exponential", "base-graph:k=1"}) {
    FakeNetwork net(testing::small_network_of_steps(200, topology, kMembers), 3);
    EXPECT_EQ(messages_of_use(net.run), 2U) << topology;
    net.patience.min = std::chrono::seconds(2);
    net.patience.max = std::chrono::minutes(1);
    net.peers[5]->phase = std::chrono::milliseconds(50);
    for (protocol::Member member = 0; member < kMembers; ++member) net.start(member, member + 1);
    net.connect_all();
    net.run_until([] { return false; }, 1'000'000);
    EXPECT_EQ(lost_messages(net), 0U) << topology;
  }
  FakeNetwork one_way(testing::small_network_of_steps(20, "directed-ring", 64), 3);
  EXPECT_EQ(messages_of_use(one_way.run), 16U);
}

// What is kept for a link that breaks: two models a neighbour, however far a word has to go.
TEST(NeighbourProtocol, TwoMessagesOfANeighbourAreKeptToBeSentAgain) {
  constexpr std::uint32_t kMembers = 16;
  FakeNetwork net(testing::small_network_of_steps(400, "one-peer-exponential", kMembers, "sgp"), 3);
  net.patience.min = std::chrono::seconds(2);
  net.patience.max = std::chrono::minutes(1);
  net.peers[5]->phase = std::chrono::milliseconds(100);
  for (protocol::Member member = 0; member < kMembers; ++member) net.start(member, member + 1);
  net.connect_all();
  std::map<protocol::Member, std::size_t> again;
  std::size_t most = 0;
  for (int round = 1; round < 10; ++round) {
    net.run_until([&] { return net.peers[5]->training->progress().exchange >= 20U * round; });
    again.clear();
    net.on_send = [&](protocol::Member from, protocol::Member to, const protocol::VectorTransfer&) {
      if (to == 5) most = std::max(most, ++again[from]);
    };
    for (protocol::Member member = 0; member < kMembers; ++member) {
      net.cut(5, member);
      net.connect(5, member);
    }
    net.on_send = nullptr;
  }
  EXPECT_GE(most, 1U);
  EXPECT_LE(most, 3U) << "two, and that of the exchange at work";
}

}  // namespace
}  // namespace starling::gossip
