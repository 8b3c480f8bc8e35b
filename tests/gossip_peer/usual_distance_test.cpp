// SPDX-License-Identifier: Apache-2.0
// Numbers that would ruin a model at once are left out by their sender's name; honest training on
// data as different as they come never is.
#include "gossip/peer/usual_distance.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/train/evaluator.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/fake_network.h"

namespace starling::gossip {
namespace {

using starling::testing::FakeNetwork;

TEST(UsualDistance, RefusesWhatIsFarBeyondTheUsualAndLearnsNothingOfIt) {
  const std::vector<float> own(100, 0.5F);
  const auto at = [&](float distance) {
    std::vector<float> theirs = own;
    theirs[7] += distance;
    return theirs;
  };
  UsualDistance usual;
  EXPECT_FALSE(usual.accepts(1, at(3e38F), own));
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(usual.accepts(1, at(2), own));
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(usual.accepts(1, at(1e3F), own));
  EXPECT_EQ(usual.distance(), 1000);
  EXPECT_EQ(usual.limit(), 8 * (1 + 5));
  // Each sender's own usual counts, where algorithms send sums of many models.
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(usual.accepts(2, at(40), own));
  EXPECT_TRUE(usual.accepts(2, at(600), own));
}

bool says_far(const FakeNetwork& net) {
  return std::ranges::any_of(net.peers, [](const auto& peer) {
    return std::ranges::any_of(peer->said, [](const std::string& line) {
      return line.find("away from this peer's") != std::string::npos;
    });
  });
}

void start_and_connect(FakeNetwork& net) {
  for (protocol::Member member = 0; member < net.peers.size(); ++member) {
    net.start(member, member + 1);
  }
  net.connect_all();
}

TEST(UsualDistance, HonestTrainingOnSkewedDataIsNeverLeftOut) {
  using Setting = std::pair<const char*, const char*>;
  for (const auto& [algorithm, topology] : {Setting{"dpsgd", "ring"},
                                            {"gradient-tracking", "exponential"},
                                            {"relaysgd", "path"},
                                            {"qg-dsgdm", "ring"},
                                            {"sgp", "exponential"},
                                            {"diloco", "ring"},
                                            {"ad-psgd", "ring"}}) {
    NetOptions options = testing::small_network_of_steps(400, topology, 8, algorithm);
    options.data.partition = "balanced-dirichlet:alpha=0.1";
    options.train.local_steps_from = 100;  // then eight steps between two mixings
    options.train.train.local_steps = 8;
    options.train.train.learning_rate = 0.5;
    FakeNetwork net(options, 3);
    start_and_connect(net);
    net.run_to_rest();
    EXPECT_FALSE(says_far(net)) << algorithm;
    for (const auto& peer : net.peers) EXPECT_EQ(peer->finishes, 1) << algorithm;
  }
}

TEST(UsualDistance, AMemberThatSendsHugeNumbersSpoilsNothing) {
  using Setting = std::pair<const char*, float>;
  for (const auto& [algorithm, number] : {Setting{"dpsgd", 3e38F},
                                          {"dpsgd", 1e30F},
                                          {"gradient-tracking", 1e30F},
                                          {"ad-psgd", 1e30F}}) {
    FakeNetwork net(testing::small_network_of_steps(300, "ring", 4, algorithm), 5);
    net.falsify = [&](protocol::Member from, SharedBytes data) {
      if (from != 3 || data.size() == 0) return data;
      const std::vector<float> huge(data.size() / sizeof(float), number);
      return SharedBytes::own(to_bytes(as_bytes(std::span(huge))));
    };
    start_and_connect(net);
    net.run_to_rest();
    EXPECT_TRUE(says_far(net)) << algorithm;
    for (const protocol::Member member : {0U, 1U, 2U}) {
      EXPECT_FALSE(net.peers[member]->failure) << algorithm;
      const auto evaluated = train::evaluate(
          *net.experiment.model, *net.peers[member]->course->model(), net.experiment.parts.front());
      EXPECT_GT(evaluated->accuracy, 0.85) << algorithm << " " << number;
    }
  }
}

}  // namespace
}  // namespace starling::gossip
