// SPDX-License-Identifier: Apache-2.0
// Peers that average in drawn groups: with the bits of the recurrence, and when a member is slow,
// is killed, frozen, cut off or started again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gossip/collective/drawn_groups.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/fake_network.h"
#include "tests/gossip_peer/peer_cluster.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using starling::testing::FakeNetwork;
using starling::testing::PeerWorld;
using starling::testing::simulated_models;

NetOptions in_groups(std::uint64_t steps, std::uint32_t nodes, std::uint32_t group) {
  return testing::small_network_of_steps(steps, "ring", nodes,
                                         fmt::format("all-reduce:group={}", group));
}

Exchange exchange_of(const FakeNetwork& net, Member member) {
  return net.peers[member]->training->progress().exchange;
}

void start_linked(FakeNetwork& net) {
  for (Member member = 0; member < net.peers.size(); ++member) net.start(member, member + 1);
  net.connect_all();
}

TEST(PeersInGroups, WithoutFaultsHaveTheBitsOfTheRecurrence) {
  for (const auto& [nodes, group] : {std::pair{16U, 4U}, {11U, 4U}, {5U, 8U}, {7U, 2U}}) {
    SCOPED_TRACE(fmt::format("{} in groups of {}", nodes, group));
    PeerWorld world(in_groups(20, nodes, group), 1, false);
    world.phase = [&world] { return std::chrono::milliseconds(1 + world.rng.below(300)); };
    world.start_all();
    world.publish(world.roster(1));
    if (!world.run_until([&] { return world.all_finished(); }, 1h, "all have finished")) return;
    const auto expected = simulated_models(world.experiment);
    EXPECT_EQ(std::ranges::count(expected, expected[0]) == nodes, nodes <= group);
    for (std::size_t i = 0; i < nodes; ++i) EXPECT_EQ(world.model(i), expected[i]) << i;
  }
}

// One of 16 takes 20 times as long for a phase. Until it has come, its group is where it was, and
// all others have ended that exchange.
TEST(PeersInGroups, AStragglerDelaysItsGroup) {
  FakeNetwork net(in_groups(100'000, 16, 4), 3);
  net.patience = {.min = 10s, .max = 60s, .start = 60s};
  start_linked(net);
  constexpr Member kSlow = 5;
  net.run_until([&] { return exchange_of(net, kSlow) >= 20; });
  net.peers[kSlow]->mixing = 10ms;
  net.peers[kSlow]->phase = 2s;
  const Exchange at = exchange_of(net, kSlow) + 1;  // whose phase has not begun
  const collective::GroupDraw draw{.seed = net.run.plan.seed, .members = 16, .size = 4};
  const std::vector<Member> group = draw.group_of(kSlow, at);
  net.run_until([&] { return exchange_of(net, kSlow) >= at; });
  const TimePoint begun = net.now;
  net.run_until([&] { return exchange_of(net, kSlow) > at || net.now >= begun + 900ms; });
  ASSERT_EQ(exchange_of(net, kSlow), at);
  for (Member member = 0; member < 16; ++member) {
    const bool is_mate = std::ranges::count(group, member) == 1;
    if (is_mate) {
      EXPECT_EQ(exchange_of(net, member), at) << member;
    } else {
      EXPECT_GT(exchange_of(net, member), at) << member;
    }
  }
}

// It costs the deadline of those that meet it before its death is known, and nothing later.
TEST(PeersInGroups, GoOnWithoutWhoIsKilled) {
  FakeNetwork net(in_groups(100'000, 9, 3), 1);
  start_linked(net);
  net.run_until([&] { return exchange_of(net, 0) >= 20; });
  net.stop(4);
  for (Member member = 0; member < 9; ++member) {
    if (member != 4) net.peers[member]->training->reach(4, false);
  }
  const TimePoint killed = net.now;
  const Exchange before = exchange_of(net, 0);
  net.run_until([&] { return exchange_of(net, 0) >= before + 200; });
  // A phase and its mixing take 20 ms on average, and eight messages in a row 5.5 ms each.
  EXPECT_LT(to_seconds(net.now - killed), 200 * 0.12);
  for (Member member = 0; member < 9; ++member) {
    if (member == 4) continue;
    EXPECT_NEAR(static_cast<double>(exchange_of(net, member)), static_cast<double>(before + 200),
                8);
    EXPECT_FALSE(net.peers[member]->training->support().minority);
  }
}

TEST(PeersInGroups, WhoIsStartedAgainComesBack) {
  for (const bool kept : {false, true}) {
    FakeNetwork net(in_groups(100'000, 9, 3), 2);
    net.patience.start = 60s;
    start_linked(net);
    net.run_until([&] { return exchange_of(net, 0) >= 20; });
    net.stop(4);
    net.run_until([&] { return exchange_of(net, 0) >= 60; });
    ProtocolStart start;
    const auto initial = net.run.initial.values();
    start.model.assign(initial.begin(), initial.end());
    if (kept) start.exchange = start.support.backed = 19;
    const TimePoint back = net.now;
    net.start(4, 17, start);
    net.connect_all();
    net.run_until([&] { return exchange_of(net, 4) + 3 >= exchange_of(net, 0); });
    EXPECT_LT(net.now - back, 5s) << kept;
    EXPECT_GE(net.peers[4]->copies, 1);
    const Exchange then = exchange_of(net, 0);
    // It takes part again: its groups hear it.
    const auto hears_all = [&] {
      return net.peers[4]->training->progress().heard == 2 && exchange_of(net, 4) > then + 20;
    };
    net.run_until(hears_all);
    EXPECT_GE(exchange_of(net, 4) + 3, exchange_of(net, 0));
  }
}

// Links look whole, and nothing passes for a minute; then it is behind, or on its own ahead.
TEST(PeersInGroups, WhoWasCutOffTakesTheModelOfThoseWithAQuorum) {
  FakeNetwork net(in_groups(100'000, 8, 4), 3);
  net.patience = {};
  for (const auto& peer : net.peers) peer->phase = 100ms;
  start_linked(net);
  net.run_until([&] { return exchange_of(net, 0) >= 50; });
  net.pull({6, 7}, 1min);
  const TimePoint cut = net.now;
  net.run_until([&] { return net.now >= cut + 50s; }, 2'000'000);
  EXPECT_TRUE(net.peers[7]->training->support().minority);
  EXPECT_FALSE(net.peers[0]->training->support().minority);
  const double elapsed = static_cast<double>(exchange_of(net, 7));
  EXPECT_LT(elapsed, 1.5 * static_cast<double>(exchange_of(net, 0)));
  const int copies = net.peers[6]->copies + net.peers[7]->copies;
  net.run_until([&] { return net.now >= cut + 90s; }, 2'000'000);
  EXPECT_GT(net.peers[6]->copies + net.peers[7]->copies, copies);
  for (Member member = 0; member < 8; ++member) {
    EXPECT_FALSE(net.peers[member]->training->support().minority) << member;
    EXPECT_NEAR(static_cast<double>(exchange_of(net, member)),
                static_cast<double>(exchange_of(net, 0)), 5);
    EXPECT_EQ(net.peers[member]->minorities_taken, 0) << member;
  }
}

TEST(PeersInGroups, AFrozenPeerIsBackSoon) {
  PeerWorld world(in_groups(20'000, 8, 4), 1);
  world.phase = [&world] { return std::chrono::milliseconds(50 + world.rng.below(100)); };
  world.start_all();
  world.publish(world.roster(1));
  const auto at = [&](std::size_t i) { return world.peers[i]->shell().report().exchange; };
  for (const Duration time : {20s, 80s}) world.at(time, [] {});
  const auto run_to = [&](Duration time) {
    world.run_until([&] { return world.scheduler.now() >= TimePoint{} + time; }, 2min, "time");
  };
  run_to(20s);
  world.freeze(2);
  const Exchange before = at(2);
  run_to(80s);
  EXPECT_EQ(at(2), before);
  EXPECT_GT(at(0), before + 150) << "the others go on";
  world.thaw(2);
  world.run_until([&] { return at(2) + 5 > at(0); }, 15s, "it is where they are");
}

// A phase that was trained is mixed in the next epoch, by those who are there.
TEST(PeersInGroups, AnotherEpochGoesOnWithWhatWasTrained) {
  FakeNetwork net(in_groups(100'000, 7, 3), 5);
  start_linked(net);
  net.run_until([&] { return exchange_of(net, 0) >= 20; });
  net.join_without_starting();
  const TimePoint begun = net.now;
  net.run_until([&] { return exchange_of(net, 0) >= 60; });
  EXPECT_LT(net.now - begun, 8s);
  for (Member member = 0; member < 7; ++member) {
    EXPECT_NEAR(static_cast<double>(exchange_of(net, member)), 60, 5);
    // Nothing was trained twice; who copied a model may have left something out.
    EXPECT_LE(net.trained(member), exchange_of(net, member) + 1);
  }
}

}  // namespace
}  // namespace starling::gossip
