// SPDX-License-Identifier: Apache-2.0
// Devices that join and are not started, one a second, in virtual time: who trains goes on at half
// of the calm pace at least, however long a local phase is, and trains none of them twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using starling::testing::PeerWorld;

constexpr std::size_t kRunning = 8;
constexpr std::size_t kJoining = 15;  // one a second
constexpr Duration kWindow = 15s;

protocol::Exchange slowest(const PeerWorld& world) {
  protocol::Exchange least = world.progress(0).exchange;
  for (std::size_t i = 1; i < kRunning; ++i) least = std::min(least, world.progress(i).exchange);
  return least;
}

// Exchanges of the slowest in a window of virtual time.
protocol::Exchange exchanges_in(PeerWorld& world, Duration window) {
  const protocol::Exchange before = slowest(world);
  world.run_for(window);
  return slowest(world) - before;
}

struct Onboarded {
  std::string algorithm;
  std::string topology = "ring";
  std::string mixing = "own";
};

class Onboarding : public ::testing::TestWithParam<Onboarded> {};

TEST_P(Onboarding, AJoinASecondLeavesHalfOfTheCalmPace) {
  const auto& [algorithm, topology, mixing] = GetParam();
  for (const Duration phase : {50ms, 300ms, 1000ms}) {
    NetOptions options =
        testing::small_network_of_steps(100'000, topology, kRunning + kJoining, algorithm);
    options.topology.mixing = mixing;
    PeerWorld world(options, 11);
    std::vector<std::size_t> members(kRunning);
    std::iota(members.begin(), members.end(), 0);
    for (const std::size_t i : members) {
      auto& peer = *world.peers[i];
      peer.training_time = [&world, phase] {
        return phase / 2 + std::chrono::microseconds(world.rng.below(
                               static_cast<std::uint64_t>(phase / std::chrono::microseconds(1))));
      };
      peer.mixing_time = [] { return 5ms; };
      world.start(i);
    }
    std::uint64_t epoch = 1;
    world.publish(world.roster(epoch, members));
    exchanges_in(world, 5s);
    const protocol::Exchange calm = exchanges_in(world, kWindow);
    for (std::size_t join = 0; join < kJoining; ++join) {
      world.at(world.scheduler.now() - TimePoint{} + join * 1s, [&] {
        members.push_back(members.size());
        world.publish(world.roster(++epoch, members));
      });
    }
    // Which phases are trained, and that none of them is twice, the world's invariants judge.
    const protocol::Exchange joining = exchanges_in(world, kWindow);
    EXPECT_EQ(epoch, 1 + kJoining);
    EXPECT_GE(2 * joining, calm) << "local phases of " << to_seconds(phase) << " s"
                                 << world.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Onboarding,
                         ::testing::Values(Onboarded{"dpsgd"}, Onboarded{"sgp"},
                                           Onboarded{"gradient-tracking"}, Onboarded{"choco"},
                                           Onboarded{"d2", "ring", "lazy"},
                                           Onboarded{"relaysgd", "path"}, Onboarded{"detag"}),
                         [](const auto& instance) {
                           std::string name = instance.param.algorithm;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace starling::gossip
