// SPDX-License-Identifier: Apache-2.0
// Peers that nobody can dial, whose links the issuer relays: the simulation's bits, and what they
// do when the issuer or the other end goes away, or when frames come that nobody should send.
#include <gtest/gtest.h>

#include "core/link/relayed_frame.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"
#include "tests/gossip_peer/relay_hub.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerCluster;
using starling::testing::RelayHub;
using starling::testing::simulated_models;

struct Relayed {
  Relayed(const NetOptions& options, std::set<std::size_t> undialled, bool lossy = false)
      : cluster(options, lossy), hub(cluster.loop) {
    cluster.undialled = std::move(undialled);
    cluster.relay = [this](const std::string& name) { return hub.carrier(name); };
    if (!lossy) return;
    cluster.options.patience_min = std::chrono::milliseconds(300);
    cluster.options.patience_max = std::chrono::seconds(2);
  }
  void start(std::size_t index) {
    cluster.start(index);
    PeerCluster::Peer* const peer = cluster.peers[index].get();
    PeerNode* const node = peer->node.get();
    hub.attach(peer->name,
               {.up = [node] { node->links().issuer_up(); },
                .down = [node] { node->links().issuer_down(); },
                .drained = [node] { node->links().issuer_drained(); },
                .take = [node](const protocol::Relay& r,
                               const SharedBytes& p) { node->links().take_relayed(r, p); }});
    hub.connect(peer->name);
  }
  void stop(std::size_t index) {
    hub.disconnect(cluster.peers[index]->name);
    cluster.stop(index);
  }
  void publish(const identity::SignedRoster& roster) {
    hub.publish(roster);
    cluster.publish(roster);
  }
  void start_all() {
    for (std::size_t i = 0; i < cluster.peers.size(); ++i) start(i);
    publish(cluster.roster(1));
  }
  protocol::PeerReport report(std::size_t index) const {
    return cluster.peers[index]->node->peer().report();
  }
  bool all_hear(std::uint32_t neighbours) const {
    for (std::size_t i = 0; i < cluster.peers.size(); ++i) {
      if (report(i).neighbours != neighbours) return false;
    }
    return true;
  }

  PeerCluster cluster;
  RelayHub hub;
};

NetOptions long_ring(std::uint32_t nodes) {
  NetOptions options = testing::small_network("ring", nodes);
  options.run.steps = 100'000;
  options.evaluate.every = options.run.steps;
  return options;
}

TEST(RelayedPeers, LearnTheBitsOfTheSimulation) {
  const std::set<std::size_t> two{1, 2}, three{0, 1, 2};
  for (const std::string algorithm : {"dpsgd", "gradient-tracking"}) {
    for (const auto& undialled : {two, three}) {
      Relayed net(testing::small_network("ring", 3, algorithm), undialled);
      net.start_all();
      net.cluster.run_until_finished();
      const auto expected = simulated_models(net.cluster.experiment);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(net.cluster.model(i), expected[i]) << algorithm;
      EXPECT_GT(net.hub.relayed(), 0U);
      // Each end of each pair that is relayed says so, once.
      EXPECT_EQ(net.cluster.log.count("is relayed by the issuer"), undialled == two ? 2U : 6U);
    }
  }
}

TEST(RelayedPeers, WhoCanBeDialledIsNotRelayed) {
  Relayed net(testing::small_network("ring", 3), {1});
  net.start_all();
  net.cluster.run_until_finished();
  EXPECT_EQ(net.hub.relayed(), 0U);
  EXPECT_EQ(net.cluster.log.count("is relayed by the issuer"), 0U);
}

TEST(RelayedPeers, AgreeOnTheirMean) {
  NetOptions options = testing::small_network("ring", 3, "all-reduce");
  Relayed net(options, {0, 1, 2});
  net.start_all();
  net.cluster.run_until_finished();
  EXPECT_FALSE(net.cluster.model(0).empty());
  EXPECT_EQ(net.cluster.model(0), net.cluster.model(1));
  EXPECT_EQ(net.cluster.model(0), net.cluster.model(2));
}

TEST(RelayedPeers, GoOnAloneWithoutTheIssuerAndTogetherWhenItIsBack) {
  Relayed net(long_ring(3), {0, 1, 2}, true);
  net.start_all();
  net.cluster.run_until([&] { return net.report(0).step >= 50; }, "50 steps");
  for (const auto& peer : net.cluster.peers) net.hub.disconnect(peer->name);
  const std::uint64_t step = net.report(0).step;
  net.cluster.run_until([&] { return net.all_hear(0) && net.report(0).step > step + 20; },
                        "each goes on alone");
  for (const auto& peer : net.cluster.peers) net.hub.connect(peer->name);
  net.cluster.run_until([&] { return net.all_hear(2); }, "all hear one another again");
}

TEST(RelayedPeers, TheOtherEndGoesAwayAndComesBack) {
  Relayed net(long_ring(3), {0, 1, 2}, true);
  net.start_all();
  net.cluster.run_until([&] { return net.report(1).step >= 50; }, "50 steps");
  net.stop(1);
  const std::uint64_t step = net.report(0).step;
  net.cluster.run_until(
      [&] {
        return net.report(0).step > step + 50 && net.report(0).neighbours == 1 &&
               net.report(2).neighbours == 1;
      },
      "the others go on with each other");
  net.start(1);
  net.cluster.run_until([&] { return net.all_hear(2); }, "all hear one another again");
}

TEST(RelayedPeers, ANewSessionInThePlaceOfABrokenOneIsANewLink) {
  Relayed net(long_ring(3), {0, 1, 2}, true);
  net.start_all();
  net.cluster.run_until([&] { return net.all_hear(2); }, "all hear one another");
  for (int i = 0; i < 5; ++i) {
    net.hub.connect("node-02");
    const std::uint64_t step = net.report(1).step;
    net.cluster.run_until([&] { return net.all_hear(2) && net.report(1).step > step + 10; },
                          "all hear one another again");
  }
}

TEST(RelayedPeers, WhoIsNoMemberAnyMoreIsNotHeardAndTheRosterSpreads) {
  Relayed net(long_ring(3), {0, 1, 2}, true);
  net.start_all();
  net.cluster.run_until([&] { return net.report(2).step >= 20; }, "20 steps");
  // The issuer knows it, and one of the members; the other hears of it from that one.
  const auto roster = net.cluster.roster(2, {0, 1});
  net.hub.publish(roster);
  net.cluster.peers[0]->node->peer().take_roster(roster, PeerShell::Source::kIssuer);
  net.cluster.run_until(
      [&] {
        return net.report(1).epoch == 2 && net.report(0).neighbours == 1 &&
               net.report(1).neighbours == 1 && net.report(2).neighbours == 0;
      },
      "two train on in the new epoch, the third is heard by nobody");
}

TEST(RelayedPeers, FramesOfWhoMayNotBeRelayedChangeNothing) {
  Relayed net(testing::small_network("ring", 3), {1, 2});
  net.start_all();
  const SharedBytes payload = SharedBytes::own(Bytes(100'000, std::byte{1}));
  const auto attack = [&](std::size_t at) {
    // node-01 can be dialled; the second and third peer's own names are nobody else's.
    for (const std::string& from :
         {std::string("node-01"), std::string("stranger"), net.cluster.peers[at]->name}) {
      for (const protocol::Message& message :
           {protocol::Message(protocol::PeerHello{.epoch = 1}), protocol::Message(protocol::Swim{}),
            protocol::Message(protocol::Bye{"stopping", ""}),
            protocol::Message(protocol::Chunk{TaskId(1), 0})}) {
        net.cluster.peers[at]->node->links().take_relayed(*link::to_relay(from, message), payload);
        net.cluster.peers[at]->node->links().take_relayed(*link::to_relay(from, message), {});
      }
      net.cluster.peers[at]->node->links().take_relayed(
          {.peer = from, .type = 999, .header = Bytes(64, std::byte{0xff})}, {});
    }
  };
  std::uint64_t attacked = 0;
  net.cluster.run_until(
      [&] {
        for (const std::size_t at : {std::size_t{1}, std::size_t{2}}) attack(at);
        ++attacked;
        return net.cluster.peers[0]->node->peer().is_finished() &&
               net.cluster.peers[1]->node->peer().is_finished() &&
               net.cluster.peers[2]->node->peer().is_finished();
      },
      "all have finished");
  EXPECT_GT(attacked, 3U);
  const auto expected = simulated_models(net.cluster.experiment);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(net.cluster.model(i), expected[i]);
}

}  // namespace
}  // namespace starling::gossip
