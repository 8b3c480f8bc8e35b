// SPDX-License-Identifier: Apache-2.0
// Devices that join and are not started, one a second, in virtual time: who trains goes on at half
// of the calm pace at least, however long a local phase is, and trains none of them twice.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/fake_network.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using starling::testing::FakeNetwork;

constexpr protocol::Member kRunning = 8;
constexpr Duration kWindow = 30s;

protocol::Exchange slowest(const FakeNetwork& net) {
  protocol::Exchange least = net.peers.front()->training->progress().exchange;
  for (protocol::Member member = 1; member < kRunning; ++member) {
    least = std::min(least, net.peers[member]->training->progress().exchange);
  }
  return least;
}

// Exchanges of the slowest in a window of virtual time.
protocol::Exchange exchanges_in(FakeNetwork& net, Duration window) {
  const protocol::Exchange before = slowest(net);
  const TimePoint end = net.now + window;
  net.run_until([&] { return net.now >= end; }, 5'000'000);
  return slowest(net) - before;
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
    NetOptions options = testing::small_network_of_steps(100'000, topology, kRunning, algorithm);
    options.topology.mixing = mixing;
    FakeNetwork net(options, 11);
    net.patience = {.min = 2s, .max = 60s, .start = 60s};
    for (protocol::Member member = 0; member < kRunning; ++member) {
      net.peers[member]->phase = phase;
      net.peers[member]->mixing = 5ms;
      net.start(member, member + 1);
    }
    net.connect_all();
    exchanges_in(net, 5s);
    const protocol::Exchange calm = exchanges_in(net, kWindow);
    for (Duration join = 0s; join < kWindow; join += 1s) {
      net.at(net.now + join, [&net] { net.join_without_starting(); });
    }
    const protocol::Exchange joining = exchanges_in(net, kWindow);
    EXPECT_GE(2 * joining, calm) << "local phases of " << to_seconds(phase) << " s";
    for (protocol::Member member = 0; member < kRunning; ++member) {
      EXPECT_LE(net.trained(member), net.peers[member]->training->progress().step + 1) << member;
    }
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
