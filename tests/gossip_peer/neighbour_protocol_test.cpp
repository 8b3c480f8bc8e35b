// SPDX-License-Identifier: Apache-2.0
// What a protocol among neighbours does with its algorithm's state, without faults.
#include "gossip/peer/neighbour_protocol.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "gossip/algorithms/mass_ledger.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using starling::testing::PeerWorld;
using starling::testing::run_of;

// The weight is the last number of the ledger's state.
std::uint64_t weight_of(const TrainingProtocol& training) {
  const Bytes state = training.state();
  return load_little<std::uint64_t>(state.data() + state.size() - sizeof(std::uint64_t));
}

// What is pushed before two neighbours know each other waits on the edge. Were it lost, each step
// would move the mean model by n / (sum of the weights left) of itself.
TEST(NeighbourProtocol, NoMassIsLostBeforeNeighboursKnowEachOther) {
  for (const std::string topology : {"ring", "exponential"}) {
    PeerWorld world(testing::small_network_of_steps(60, topology, 8, "sgp"), 3);
    world.begin();
    world.run_to_end();
    world.run_for(5s);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < world.peers.size(); ++i) sum += weight_of(world.training(i));
    EXPECT_EQ(sum, std::uint64_t{8} << 40) << topology;
  }
}

std::size_t lost_messages(const PeerWorld& world) {
  return static_cast<std::size_t>(std::ranges::count_if(world.lines, [](const std::string& line) {
    return line.find("is lost") != std::string::npos;
  }));
}

constexpr std::size_t kSlow = 5;

void slow_down(PeerWorld& world, Duration mean) {
  const auto time = [&world, mean] {
    return Duration(mean.count() / 2) + Duration(static_cast<Duration::rep>(world.rng.below(
                                            static_cast<std::uint64_t>(mean.count()))));
  };
  world.peers[kSlow]->training_time = world.peers[kSlow]->mixing_time = time;
}

// One member is five times as slow as the others, so all that may wait for it does.
TEST(NeighbourProtocol, TwoMessagesOfANeighbourAreEnoughForASlowMember) {
  for (const std::string topology : {"ring", "one-peer-exponential", "base-graph:k=1"}) {
    PeerWorld world(testing::small_network_of_steps(200, topology, 16), 3);
    EXPECT_EQ(messages_of_use(run_of(world.experiment)), 2U) << topology;
    slow_down(world, 50ms);
    world.begin();
    world.run_to_end();
    EXPECT_EQ(lost_messages(world), 0U) << topology;
  }
  const auto one_way = testing::prepared(testing::small_network_of_steps(20, "directed-ring", 64));
  EXPECT_EQ(messages_of_use(run_of(one_way)), 16U);
}

// What is kept for a link that breaks: two models a neighbour, however far a word has to go.
TEST(NeighbourProtocol, TwoMessagesOfANeighbourAreKeptToBeSentAgain) {
  PeerWorld world(testing::small_network_of_steps(400, "one-peer-exponential", 16, "sgp"), 3);
  slow_down(world, 100ms);
  // At once, when a link is there anew.
  std::map<std::pair<std::size_t, TimePoint>, std::size_t> at_once;
  std::set<std::pair<std::size_t, Exchange>> sent;
  std::size_t again = 0;
  world.on_transfer = [&](std::size_t from, std::size_t to,
                          const protocol::VectorTransfer& transfer, const SharedBytes&) {
    const auto* const mix = std::get_if<protocol::MixMessage>(&transfer.content);
    if (to != kSlow || mix == nullptr) return;
    ++at_once[{from, world.scheduler.now()}];
    again += sent.insert({from, mix->exchange}).second ? 0 : 1;
  };
  world.begin();
  for (Exchange round = 1; round < 10; ++round) {
    world.run_to_exchange(kSlow, 20 * round);
    for (const auto& peer : world.peers) {
      if (peer != world.peers[kSlow]) world.network.reset(peer->name, world.peers[kSlow]->name);
    }
  }
  std::size_t most = 0;
  for (const auto& [when, messages] : at_once) most = std::max(most, messages);
  EXPECT_GE(again, 1U);
  EXPECT_LE(most, 3U) << "two, and that of the exchange at work";
}

}  // namespace
}  // namespace starling::gossip
