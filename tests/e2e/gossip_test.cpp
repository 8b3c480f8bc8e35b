// SPDX-License-Identifier: Apache-2.0
// Gossip peers as real processes with a coordinator that signs their roster.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>

#include "tests/e2e/federation.h"
#include "tests/support/machine_stopwatch.h"

namespace starling {
namespace {

using testing::kPrograms;
using testing::Process;
namespace json = boost::json;

constexpr const char* kNetwork = R"(
[topology]
spec = "complete"
nodes = 5
[data]
dataset = "synthetic:rows=600,features=12,classes=3"
[evaluate]
dataset = "none"
)";
constexpr int kPeers = 5;

class GossipFederation : public testing::FederationFixture {
 protected:
  static std::string name(int peer) { return "peer-" + std::to_string(peer); }
  void start(int peer) {
    const std::string address = "127.0.0.1:" + std::to_string(testing::free_port());
    join(name(peer), {"--role", "peer", "--address", address});
    edges_.push_back(std::make_unique<Process>(std::vector<std::string>{
        kPrograms + "starling-edge", "start", "--state", path(name(peer)), "--data.dataset",
        "synthetic:rows=600,features=12,classes=3", "--data.partition",
        "iid:index=" + std::to_string(peer) + ",of=" + std::to_string(kPeers), "--gossip.listen",
        address}));
  }
  // So many members are left, and each has heard all others in its last exchange.
  bool all_hear(int neighbours) {
    const json::value network = coordinator_json({"gossip", "show"});
    const json::array& members = network.at("members").as_array();
    return members.size() == static_cast<std::size_t>(neighbours) + 1 &&
           std::ranges::all_of(members, [&](const json::value& member) {
             const json::object* report = member.at("report").if_object();
             return report && report->at("neighbours") == neighbours;
           });
  }
  void wait_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline)
          << json::serialize(coordinator_json({"gossip", "show"}));
    }
  }
  void start_network(int steps) {
    for (int peer = 1; peer <= kPeers; ++peer) start(peer);
    std::ofstream(path("net.toml")) << "steps = " << steps << kNetwork;
    ASSERT_EQ(coordinator({"gossip", "start", path("net.toml")}).exit_code, 0);
  }
};

TEST_F(GossipFederation, ARevokedPeerIsCutOffOnEveryLinkWithinTenSeconds) {
  start_network(10'000'000);
  wait_until([&] { return all_hear(kPeers - 1); });

  const testing::MachineStopwatch since_revocation;
  ASSERT_EQ(coordinator({"client", "revoke", name(2)}).exit_code, 0);
  const auto expect_loss = [&](int peer, const std::string& whom) {
    Process& edge = *edges_[static_cast<std::size_t>(peer) - 1];
    EXPECT_TRUE(edge.wait_for("lost " + whom)) << edge.output();
  };
  for (const int peer : {1, 3, 4, 5}) {
    expect_loss(peer, "peer-2 (not-a-member)");
    expect_loss(2, "peer-");  // each of them, in any order
  }
  EXPECT_LT(since_revocation.seconds(), 10);
  wait_until([&] { return all_hear(kPeers - 2); });
  const testing::Finished status =
      testing::run({kPrograms + "starling-edge", "status", "--state", path(name(2))});
  EXPECT_NE(status.output.find("last error     "), std::string::npos) << status.output;
  EXPECT_NE(status.output.find("revoked"), std::string::npos) << status.output;
  for (const auto& edge : edges_) edge->signal(SIGTERM);
  for (const auto& edge : edges_) EXPECT_TRUE(edge->wait().has_value()) << edge->output();
}

TEST_F(GossipFederation, ANetworkThatAllHaveEndedIsShownAsFinished) {
  start_network(20);
  const auto state = [&] { return coordinator_json({"gossip", "show"}).at("state"); };
  wait_until([&] { return state() == "finished"; });
  ASSERT_EQ(coordinator({"gossip", "stop"}).exit_code, 0);
  EXPECT_EQ(state(), "stopped");
}

}  // namespace
}  // namespace starling
