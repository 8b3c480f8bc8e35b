// SPDX-License-Identifier: Apache-2.0
// What of an algorithm outlives a process: all of it where nothing is shared along edges, else what
// a node may go on with alone; and what is refused.
#include "gossip/algorithms/algorithm_state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gossip/algorithms/lossy_sgp.h"
#include "gossip/algorithms/push_sum.h"
#include "tests/gossip/harness.h"

namespace starling::gossip {
namespace {

constexpr Node kNodes = 6;
constexpr std::size_t kSize = 7;
constexpr double kRate = 0.05;

AlgorithmOptions options(const std::string& name) {
  return {.name = name, .momentum = 0.8, .outer_rate = 0.7, .outer_momentum = 0.4};
}

Mesh mesh_of(const std::string& name) { return name == "relaysgd" ? tree(kNodes) : ring(kNodes); }

// Replaces a node after `before` exchanges, in one of two fleets that otherwise do the same.
template <class T>
Matrix trained(const std::string& name, std::optional<Node> replaced, bool with_state,
               bool lossy = false) {
  const Quadratics problem(kNodes, kSize);
  Fleet<T> fleet(plan_by_hand(options(name), kNodes, lossy), problem, scattered(kNodes, kSize));
  fleet.run(mesh_of(name), 9, kRate, 2);
  if (replaced) {
    std::optional<Bytes> state;
    if (with_state) state = save_state(fleet.node(*replaced));
    EXPECT_TRUE(fleet.replace(*replaced, state));
  }
  fleet.run(mesh_of(name), 9, kRate, 2);
  return fleet.models();
}

class Whole : public ::testing::TestWithParam<std::string> {};

TEST_P(Whole, GoesOnToTheSameBits) {
  const Matrix expected = trained<float>(GetParam(), std::nullopt, false);
  EXPECT_EQ(trained<float>(GetParam(), 2, true), expected);
  EXPECT_EQ(trained<double>(GetParam(), 2, true), trained<double>(GetParam(), std::nullopt, false));
}
INSTANTIATE_TEST_SUITE_P(AlgorithmState, Whole,
                         ::testing::Values("dpsgd", "epidemic", "qg-dsgdm", "diloco", "diloco-all",
                                           "all-reduce", "sgp"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The state is what makes it so.
TEST(AlgorithmState, MomentumCounts) {
  for (const std::string name : {"qg-dsgdm", "diloco", "diloco-all"}) {
    EXPECT_NE(trained<float>(name, 2, false), trained<float>(name, std::nullopt, false)) << name;
  }
}

// Shared along the edges: nothing but the model is kept, whatever the node held.
TEST(AlgorithmState, WhatNeighboursShareIsNotKept) {
  for (const std::string name : {"gradient-tracking", "d2", "choco", "detag", "relaysgd"}) {
    const Quadratics problem(kNodes, kSize);
    AlgorithmOptions own = options(name);
    own.gossip_rounds = 2;
    Fleet<float> fleet(plan_by_hand(own, kNodes), problem, scattered(kNodes, kSize));
    fleet.run(mesh_of(name), 8, kRate);
    EXPECT_TRUE(save_state(fleet.node(1)).empty()) << name;
  }
}

// Push-sum's shares: the weight and the mass stay the node's own, to the last unit.
TEST(AlgorithmState, MassIsNeitherMadeNorLost) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = uneven(kNodes);
  Fleet<float> fleet(plan_by_hand(options("sgp"), kNodes, true), problem, scattered(kNodes, kSize));
  fleet.run(mesh, 9, kRate);
  const auto mass = [&](Node i) {
    const auto held = dynamic_cast<LossySgp<float>&>(fleet.node(i)).ledger().mass();
    return std::vector<MassLedger::Fixed>(held.begin(), held.end());
  };
  const auto before = mass(3);
  const Row model = fleet.models()[3];
  ASSERT_TRUE(fleet.replace(3, save_state(fleet.node(3))));
  EXPECT_EQ(mass(3), before);
  EXPECT_EQ(fleet.models()[3], model);
  EXPECT_NE(before.back(), MassLedger::Fixed{1} << 40);
  // Its ends of the edges are new, so the others' are forgotten too.
  for (Node i = 0; i < kNodes; ++i) {
    if (i != 3) fleet.node(i).forget(3);
  }
  fleet.run(mesh, 300, 0);
  EXPECT_LT(distance(fleet.models(), Matrix(kNodes, fleet.models()[0])), 1e-5);
}

TEST(AlgorithmState, AsynchronousPushSumKeepsItsShare) {
  const std::vector<float> model = {1, -2, 3};
  const std::vector<float> update = {0.5F, 0.25F, -1};
  const std::vector<topologies::Weight> receivers = {{1, 0.25}, {2, 0.25}};
  for (const bool lossy : {false, true}) {
    PushSum<float> node(lossy, 2, model);
    Rng rng({.seed = 1});
    (void)node.trained(update, {0, 0.5, {}, receivers}, rng);
    EXPECT_DOUBLE_EQ(node.weight(), 0.5);
    PushSum<float> again(lossy, 2, node.model());
    ASSERT_TRUE(restore_state<float>(again, save_state<float>(node)));
    EXPECT_EQ(again.weight(), node.weight());
    EXPECT_TRUE(std::ranges::equal(again.model(), node.model()));
    if (!lossy) continue;
    EXPECT_TRUE(std::ranges::equal(again.ledger()->mass(), node.ledger()->mass()));
  }
}

TEST(AlgorithmState, RefusesWhatIsNotItsOwnAndStaysAsItWas) {
  const Plan plan = plan_by_hand(options("diloco"), kNodes);
  const std::vector<float> model(kSize, 1.0F);
  auto diloco = make_algorithm<float>(plan, 0, std::span<const float>(model));
  const Bytes good = save_state(*diloco);
  EXPECT_TRUE(restore_state(*diloco, good));
  const auto refused = [&](ByteView state) {
    const auto restored = restore_state(*diloco, state);
    return !restored && restored.error().code() == "state-mismatch";
  };
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(refused(ByteView(good).first(size))) << size;
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_TRUE(refused(longer));
  // Of another size, type or algorithm.
  const std::vector<float> larger(kSize + 1, 1.0F);
  EXPECT_TRUE(refused(save_state(*make_algorithm<float>(plan, 0, std::span<const float>(larger)))));
  const std::vector<double> wide(kSize, 1.0);
  EXPECT_TRUE(refused(save_state(*make_algorithm<double>(plan, 0, std::span<const double>(wide)))));
  const Plan other = plan_by_hand(options("qg-dsgdm"), kNodes);
  EXPECT_TRUE(refused(save_state(*make_algorithm<float>(other, 0, std::span<const float>(model)))));
  EXPECT_EQ(save_state(*diloco), good);
}

}  // namespace
}  // namespace starling::gossip
