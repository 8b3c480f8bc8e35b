// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient push with and without lost messages, and the mass ledger under it.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "gossip/algorithms/lossy_sgp.h"
#include "gossip/algorithms/push_sum.h"
#include "tests/gossip/harness.h"

namespace starling::gossip {
namespace {

constexpr Node kNodes = 8;
constexpr std::size_t kSize = 5;
const AlgorithmOptions kSgp = {.name = "sgp"};

// X <- P (X + U), w <- P w, Z = X / w, as the paper writes it.
Matrix reference(const Quadratics& problem, const std::vector<Mesh>& meshes, const Matrix& start,
                 int exchanges, double rate, int steps) {
  Matrix x = start, z = start;
  Matrix w(start.size(), Row(1, 1.0));
  for (int t = 0; t < exchanges; ++t) {
    const Mesh& mesh = meshes[static_cast<std::size_t>(t) % meshes.size()];
    Matrix local = z;
    for (int k = 0; k < steps; ++k) local = sum(local, problem.gradients(local), -rate);
    x = product(mesh.w(), sum(sum(x, local), z, -1));
    w = product(mesh.w(), w);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t k = 0; k < x[0].size(); ++k) z[i][k] = x[i][k] / w[i][0];
    }
  }
  return z;
}

// Node i sends half to i + 2^(t mod 3).
std::vector<Mesh> one_peer_exponential() {
  return {circulant(kNodes, {1}, 0.5), circulant(kNodes, {2}, 0.5), circulant(kNodes, {4}, 0.5)};
}

void expect_reference(const std::vector<Mesh>& meshes, bool lossy, double tolerance) {
  const Quadratics problem(kNodes, kSize);
  const Matrix start = scattered(kNodes, kSize);
  for (const int steps : {1, 3}) {
    Fleet<double> fleet(plan_by_hand(kSgp, kNodes, lossy), problem, start);
    for (int t = 0; t < 50; ++t) {
      fleet.step(meshes[static_cast<std::size_t>(t) % meshes.size()], 0.05, steps);
    }
    const Matrix expected = reference(problem, meshes, start, 50, 0.05, steps);
    EXPECT_LT(distance(fleet.models(), expected), tolerance) << steps;
  }
}

TEST(Sgp, IsThePapersIteration) {
  expect_reference({exponential(kNodes)}, false, 1e-12);
  expect_reference({uneven(kNodes)}, false, 1e-12);
  expect_reference(one_peer_exponential(), false, 1e-12);
}

TEST(LossySgp, IsThePapersIterationToTheFixedPoint) {
  expect_reference({exponential(kNodes)}, true, 1e-10);
  expect_reference({uneven(kNodes)}, true, 1e-10);
  expect_reference(one_peer_exponential(), true, 1e-10);
}

TEST(Sgp, IsDpsgdToTheBitWhereTheMatrixIsDoublyStochastic) {
  const Quadratics problem(kNodes, kSize);
  const Matrix start = scattered(kNodes, kSize);
  const Mesh mesh = circulant(kNodes, {1}, 0.5);
  Fleet<float> sgp(plan_by_hand(kSgp, kNodes), problem, start);
  Fleet<float> dpsgd(plan_by_hand({.name = "dpsgd"}, kNodes), problem, start);
  sgp.run(mesh, 50, 0.05);
  dpsgd.run(mesh, 50, 0.05);
  EXPECT_EQ(sgp.models(), dpsgd.models());
}

TEST(Sgp, KeepsMassAndFindsTheMeanWithoutGradients) {
  const Quadratics problem(kNodes, kSize);
  const Matrix start = scattered(kNodes, kSize);
  const Mesh mesh = uneven(kNodes);
  Row mean(kSize);
  for (const Row& x : start) {
    for (std::size_t k = 0; k < kSize; ++k) mean[k] += x[k] / kNodes;
  }
  Fleet<double> fleet(plan_by_hand(kSgp, kNodes), problem, start);
  for (int t = 0; t < 300; ++t) {
    fleet.step(mesh, 0);
    // What adapt() showed: the masses before this mixing.
    double weight = 0;
    for (Node i = 0; i < kNodes; ++i) weight += fleet.node(i).message(0).scalar;
    ASSERT_NEAR(weight, kNodes, 1e-12);
  }
  EXPECT_LT(distance(fleet.models(), Matrix(kNodes, mean)), 1e-13);
}

// The mass at the nodes plus what edges hold that has not been pulled yet.
std::vector<MassLedger::Fixed> all_mass(Fleet<double>& fleet) {
  std::vector<MassLedger::Fixed> total(kSize + 1);
  const auto ledger = [&](Node i) -> const MassLedger& {
    return dynamic_cast<LossySgp<double>&>(fleet.node(i)).ledger();
  };
  const auto add = [&](std::span<const MassLedger::Fixed> part, bool plus) {
    for (std::size_t k = 0; k < part.size(); ++k) total[k] += plus ? part[k] : 0 - part[k];
  };
  for (Node i = 0; i < kNodes; ++i) {
    add(ledger(i).mass(), true);
    for (Node j = 0; j < kNodes; ++j) {
      add(ledger(i).pushed(j), true);
      add(ledger(j).pulled(i), false);
    }
  }
  return total;
}

TEST(LossySgp, LosesNoMassAtAnyStep) {
  const Quadratics problem(kNodes, kSize);
  const std::vector<Mesh> one_peer = one_peer_exponential();
  for (const double loss : {0.0, 0.01, 0.1}) {
    for (const bool varying : {false, true}) {
      Fleet<double> fleet(plan_by_hand(kSgp, kNodes, true), problem, scattered(kNodes, kSize),
                          {.loss = loss});
      const auto before = all_mass(fleet);
      EXPECT_EQ(before.back(), MassLedger::Fixed{kNodes} << 40);
      for (int t = 0; t < 400; ++t) {
        fleet.step(varying ? one_peer[static_cast<std::size_t>(t) % 3] : uneven(kNodes), 0);
        ASSERT_EQ(all_mass(fleet), before) << "step " << t << ", loss " << loss;
      }
      Row mean(kSize);
      for (std::size_t k = 0; k < kSize; ++k) {
        mean[k] = static_cast<double>(static_cast<std::int64_t>(before[k])) * 0x1p-40 / kNodes;
      }
      EXPECT_LT(distance(fleet.models(), Matrix(kNodes, mean)), 1e-9) << loss;
    }
  }
}

TEST(LossySgp, FindsTheOptimumUnderLossWhereOthersWouldLoseMass) {
  const Quadratics problem(kNodes, kSize);
  for (const double loss : {0.01, 0.1}) {
    Fleet<double> fleet(plan_by_hand(kSgp, kNodes, true), problem, zeros(kNodes, kSize),
                        {.loss = loss});
    fleet.run(exponential(kNodes), 8000, 0.002);
    EXPECT_LT(distance(fleet.models(), problem.optima()), 0.05) << loss;
  }
}

// Node 0 of a directed ring hears nothing for 200 steps, then all that was on its edge comes at
// once.
TEST(LossySgp, ANodeThatHearsNothingForLongDoesNotRunAway) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = circulant(kNodes, {1}, 0.5);
  Fleet<double> fleet(plan_by_hand(kSgp, kNodes, true), problem, zeros(kNodes, kSize));
  fleet.cut(0);
  const auto before = all_mass(fleet);
  fleet.run(mesh, 200, 0.05);
  EXPECT_LT(distance(fleet.models(), problem.optima()), 5);
  EXPECT_EQ(all_mass(fleet).back(), before.back());
  fleet.cut({});
  fleet.run(mesh, 8000, 0.002);
  EXPECT_LT(distance(fleet.models(), problem.optima()), 0.05);
}

Plan balanced_plan() {
  Plan plan = plan_by_hand(kSgp, kNodes, true);
  plan.balanced = true;
  return plan;
}

const MassLedger& ledger_of(Fleet<double>& fleet, Node node) {
  return dynamic_cast<LossySgp<double>&>(fleet.node(node)).ledger();
}

MassLedger::Fixed made(Fleet<double>& fleet) {
  MassLedger::Fixed sum = 0;
  for (Node i = 0; i < kNodes; ++i) sum += ledger_of(fleet, i).made();
  return sum;
}

double to_double(MassLedger::Fixed x) {
  return static_cast<double>(static_cast<std::int64_t>(x)) * MassLedger::kUnit;
}

// Node 3 receives mass, and nothing comes from it. Nodes that push to it along one-way edges cannot
// know that. The others still mix; in the end all that its edges held arrives at once, and what was
// made is given up again.
TEST(LossySgp, WhoOnlyTakesEndsNoMixing) {
  constexpr Node kTaker = 3;
  const Quadratics problem(kNodes, kSize);
  const auto others_apart = [&](const Plan& plan, const std::vector<Mesh>& meshes) {
    Fleet<double> fleet(plan, problem, zeros(kNodes, kSize));
    fleet.mute(kTaker);
    double apart = 0;
    for (int t = 0; t < 4000; ++t) {
      fleet.step(meshes[static_cast<std::size_t>(t) % meshes.size()], 0.01);
      if (t < 2000) continue;
      apart = std::max(apart, apart_without(fleet.models(), kTaker));
    }
    return apart;
  };
  const Plan unbalanced = plan_by_hand(kSgp, kNodes, true);
  EXPECT_LT(others_apart(balanced_plan(), {exponential(kNodes)}), 0.1);
  EXPECT_LT(others_apart(balanced_plan(), one_peer_exponential()), 0.2);
  EXPECT_GT(others_apart(unbalanced, {exponential(kNodes)}), 1) << "no weight is made";

  for (const double loss : {0.0, 0.1}) {
    SCOPED_TRACE(loss);
    Fleet<double> fleet(balanced_plan(), problem, zeros(kNodes, kSize), {.loss = loss});
    const auto before = all_mass(fleet).back();
    const auto expect_all_mass = [&] { EXPECT_EQ(all_mass(fleet).back(), before + made(fleet)); };
    fleet.mute(kTaker);
    fleet.run(exponential(kNodes), 20000, 0.01);
    expect_all_mass();
    EXPECT_GT(to_double(made(fleet)), 4);
    fleet.mute({});
    fleet.run(exponential(kNodes), 20, 0.01);
    expect_all_mass();
    EXPECT_LT(distance(fleet.models(), problem.optima()), 0.5);
    fleet.run(exponential(kNodes), 8000, 0.002);
    expect_all_mass();
    EXPECT_LT(distance(fleet.models(), problem.optima()), 0.05);
    EXPECT_NEAR(to_double(all_mass(fleet).back()), kNodes, 0.1 * kNodes);
  }
}

// On whichever graph. Its data would come to all models, and no other's to its own.
TEST(LossySgp, WhoHearsNobodyMovesNobody) {
  const Quadratics problem(kNodes, kSize);
  for (const std::vector<Mesh>& meshes :
       {std::vector<Mesh>{exponential(kNodes)}, one_peer_exponential()}) {
    Fleet<double> fleet(balanced_plan(), problem, zeros(kNodes, kSize));
    fleet.cut(0);
    for (int t = 0; t < 4000; ++t) {
      fleet.step(meshes[static_cast<std::size_t>(t) % meshes.size()], 0.01);
    }
    EXPECT_LT(ledger_of(fleet, 0).weight(), 0x1p-15);
    EXPECT_EQ(ledger_of(fleet, 0).made(), 0U);
  }
}

TEST(LossySgp, MakesNoWeightWhereMessagesAreLost) {
  const Quadratics problem(kNodes, kSize);
  for (const double loss : {0.0, 0.1, 0.3}) {
    Fleet<double> fleet(balanced_plan(), problem, zeros(kNodes, kSize), {.loss = loss});
    fleet.run(exponential(kNodes), 8000, 0.002);
    EXPECT_EQ(made(fleet), 0U) << loss;
    EXPECT_LT(distance(fleet.models(), problem.optima()), 0.05) << loss;
  }
}

TEST(LossySgp, StepsHaveTheirOwnLengthWhereAllWeightIsTaken) {
  const Quadratics problem(kNodes, kSize);
  QuadraticTraining<double> training(problem, 0, 0);
  const Mesh mesh = exponential(kNodes);
  Row expected(kSize);
  const LocalPhase phase{.rate = 0.01};
  ASSERT_TRUE(training.steps(expected, phase.rate, phase.steps));
  const std::vector<std::pair<double, double>> factors = {
      {0.01, 0.01}, {0.25, 0.25}, {0.375, 0.5625}, {0.5, 1}, {1, 1}, {2, 1}, {9, 4.5}};
  for (const auto& [weight, factor] : factors) {
    LossySgp<double> node(kNodes, true, Row(kSize, 0));
    std::vector<MassLedger::Fixed> total(kSize + 1);
    total.back() = static_cast<MassLedger::Fixed>((weight - 1) / MassLedger::kUnit);
    Links links = mesh.links(0);
    links.receivers = {};
    const Message<double> message{.packed = std::as_bytes(std::span(total))};
    if (weight > 1) {
      ASSERT_TRUE(node.adapt(training, {.rate = 0}, links));
      const std::vector<Received<double>> inbox{{links.senders[0].node, 0.25, &message}};
      node.absorb(links, inbox, {0, kSize});
      node.conclude(links, inbox);
    } else if (weight < 1) {
      std::vector<topologies::Weight> receiver{{1, 1 - weight}};
      links.receivers = receiver;
      ASSERT_TRUE(node.adapt(training, {.rate = 0}, links));
      node.conclude(links, {});
    }
    links.receivers = {};
    const double before = node.ledger().weight();
    ASSERT_NEAR(before, weight, 1e-9);
    ASSERT_TRUE(node.adapt(training, phase, links));
    node.conclude(links, {});
    EXPECT_NEAR(node.model()[0] / expected[0], factor / weight, 0.01) << weight;
  }
}

TEST(LossySgp, KeepsTheShareOfWhoIsAbsent) {
  const Quadratics problem(kNodes, kSize);
  QuadraticTraining<double> training(problem, 0, 0);
  LossySgp<double> node(kNodes, false, Row(kSize, 1));
  const Mesh mesh = exponential(kNodes);
  Links links = mesh.links(0);
  const std::vector<Node> absent{links.receivers[1].node};
  links.absent = absent;
  ASSERT_TRUE(node.adapt(training, {}, links));
  for (const topologies::Weight& receiver : links.receivers) {
    const double pushed = static_cast<double>(node.ledger().pushed(receiver.node).back()) * 0x1p-40;
    EXPECT_NEAR(pushed, receiver.node == absent[0] ? 0 : receiver.weight, 1e-11) << receiver.node;
  }
  EXPECT_NEAR(node.ledger().weight(), links.self_weight + links.receivers[1].weight, 1e-11);
}

TEST(LossySgp, DoesNotDependOnHowColumnsAreDivided) {
  const Quadratics problem(kNodes, 67);
  const Matrix start = scattered(kNodes, 67);
  for (const bool lossy : {false, true}) {
    Fleet<float> whole(plan_by_hand(kSgp, kNodes, lossy), problem, start, {.loss = 0.1});
    Fleet<float> divided(plan_by_hand(kSgp, kNodes, lossy), problem, start,
                         {.loss = 0.1, .parts = 7});
    whole.run(uneven(kNodes), 20, 0.05);
    divided.run(uneven(kNodes), 20, 0.05);
    EXPECT_EQ(whole.models(), divided.models());
  }
}

TEST(LossySgp, SaysThatItDivergedInsteadOfWrappingAround) {
  const Quadratics problem(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(kSgp, kNodes, true), problem, scattered(kNodes, kSize));
  fleet.run(exponential(kNodes), 300, 3);
  EXPECT_TRUE(std::isnan(fleet.models()[0][0]));
}

TEST(MassLedger, KnowsWhatNoHonestEndPushes) {
  const std::vector<double> model{1, -2, 3};
  MassLedger sender(3);
  MassLedger receiver(3, 2);
  sender.reset(std::span<const double>(model));
  const auto total_of = [](std::span<const std::byte> bytes) {
    std::vector<MassLedger::Fixed> total(bytes.size() / sizeof(MassLedger::Fixed));
    std::memcpy(total.data(), bytes.data(), bytes.size());
    return total;
  };
  const auto plausible = [&](const std::vector<MassLedger::Fixed>& total) {
    return receiver.is_plausible(1, std::as_bytes(std::span(total)));
  };
  const auto first = total_of(sender.push(2, 0.25));
  ASSERT_TRUE(plausible(first));
  receiver.open(1);
  receiver.pull(1, std::as_bytes(std::span(first)), {0, 4});
  const auto second = total_of(sender.push(2, 0.5));
  EXPECT_TRUE(plausible(first));  // again
  EXPECT_TRUE(plausible(second));

  auto without_weight = second;
  without_weight.back() = first.back() - 1;
  EXPECT_FALSE(plausible(without_weight));
  auto nothing_but_mass = first;
  nothing_but_mass[1] += 1;
  EXPECT_FALSE(plausible(nothing_but_mass));
  auto of_no_weight = first;
  of_no_weight.back() -= MassLedger::Fixed{5} << 38;  // all that the receiver has
  EXPECT_FALSE(plausible(of_no_weight));
  for (const MassLedger::Fixed change : {MassLedger::Fixed{1} << 61, MassLedger::Fixed{1} << 63}) {
    for (std::size_t i = 0; i < 4; ++i) {
      auto large = second;
      large[i] += change;
      EXPECT_FALSE(plausible(large)) << i;
    }
  }
  EXPECT_FALSE(plausible({1, 2, 3}));
  auto nearly_all = second;
  nearly_all.back() += MassLedger::Fixed{3} << 40;
  EXPECT_TRUE(plausible(nearly_all));
  auto more_than_there_is = second;
  more_than_there_is.back() += MassLedger::Fixed{4} << 40;
  EXPECT_FALSE(plausible(more_than_there_is));
  for (std::size_t i = 0; i < 3; ++i) {
    auto nearly_too_large_to_hold = second;
    nearly_too_large_to_hold[i] += (MassLedger::Fixed{1} << 59) + (MassLedger::Fixed{4} << 40);
    EXPECT_FALSE(plausible(nearly_too_large_to_hold)) << i;
  }
}

// Each message may bring what there is. Of several, one after the other, the sum counts, until what
// came is passed on.
TEST(MassLedger, WhatCameBetweenTwoPushesCountsTogether) {
  constexpr Node kMembers = 4;
  MassLedger liar(1, kMembers);
  MassLedger receiver(1, kMembers);
  const auto send = [&] {
    liar.reset(std::span<const double>(std::vector<double>{6}));
    MassLedger::Fixed total[2];
    const auto bytes = liar.push(1, 1);
    std::memcpy(total, bytes.data(), bytes.size());
    const bool plausible = receiver.is_plausible(0, std::as_bytes(std::span(total)));
    receiver.open(0);
    if (plausible) receiver.pull(0, std::as_bytes(std::span(total)), {0, 2});
    return plausible;
  };
  for (int turn = 0; turn < 3; ++turn) {
    SCOPED_TRACE(turn);
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(send()) << i;
    receiver.settle();
    receiver.push(2, 0.5);
  }
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(send()) << i;
  EXPECT_FALSE(send());
}

// What it would push otherwise, others would take for a lie of its own.
// Node 1 takes half of what is there each time and gives nothing, node 2 a tenth and gives a
// little.
TEST(MassLedger, KnowsWhoOnlyTakes) {
  MassLedger ledger(1, 3);
  std::vector<MassLedger::Fixed> back = {0, 0};
  const auto hear = [&](Node from, MassLedger::Fixed weight) {
    back[1] += weight;
    ledger.open(from);
    ledger.pull(from, std::as_bytes(std::span(back)), {0, 2});
    ledger.settle();
  };
  const auto push = [&] {
    ledger.push(1, 0.5);
    ledger.push(2, 0.1);
  };
  int pushes = 0;
  for (; !ledger.is_drained_by(1); ++pushes) {
    push();
    hear(2, 1 << 20);
  }
  EXPECT_EQ(pushes, 6 + 7) << "0.45^6 < 2^-6";
  EXPECT_FALSE(ledger.is_drained_by(2)) << "it took little";
  ledger.forget(1);
  EXPECT_TRUE(ledger.is_drained_by(1)) << "whatever it says of itself";
  hear(1, MassLedger::Fixed{1} << 39);
  EXPECT_FALSE(ledger.is_drained_by(1));
}

// The node pushes a hundred times between two pulls.
TEST(MassLedger, WhoIsMuchFasterThanOthersIsDrainedByNobody) {
  MassLedger ledger(1, 2);
  std::vector<MassLedger::Fixed> back = {0, 0};
  ledger.open(1);
  for (int heard = 0; heard < 100; ++heard) {
    for (int pushes = 0; pushes < 100; ++pushes) {
      ledger.settle();
      ledger.push(1, 0.5);
      EXPECT_FALSE(ledger.is_drained_by(1));
    }
    back[1] += MassLedger::Fixed{1} << 39;
    ledger.pull(1, std::as_bytes(std::span(back)), {0, 2});
  }
}

TEST(MassLedger, TakesNoMoreOfAnEdgeThanThereCanBe) {
  MassLedger ledger(1, 2, true);
  ledger.reset(std::span<const double>(std::vector<double>{3}));
  const auto pull = [&](MassLedger::Fixed sum) {
    const std::vector<MassLedger::Fixed> total = {sum << 40, sum << 40};
    const auto bytes = std::as_bytes(std::span(total));
    ASSERT_TRUE(ledger.is_plausible(1, bytes));
    ledger.pull(1, bytes, {0, 1});
    ledger.pull(1, bytes, {1, 2});
  };
  ledger.open(1);
  pull(100);
  EXPECT_NEAR(ledger.weight(), 1 + 4, 1e-9);
  std::vector<double> model(1);
  ledger.read(std::span(model));
  EXPECT_NEAR(model[0], (3.0 + 4 * 1) / 5, 1e-9);
  EXPECT_NEAR(to_double(ledger.made()), -96, 1e-9);
  pull(101);
  EXPECT_NEAR(ledger.weight(), 1 + 4, 1e-9) << "what was left out counts as well";
  ledger.settle();
  EXPECT_NEAR(ledger.weight(), 4, 1e-9);
}

// Totals go on modulo 2^64.
TEST(MassLedger, TakesNoMoreOfAnEdgeWhoseTotalWrapsAround) {
  MassLedger ledger(1, 2, true);
  ledger.reset(std::span<const double>(std::vector<double>{1}));
  ledger.open(1);
  std::vector<MassLedger::Fixed> total(2);
  const auto bytes = std::as_bytes(std::span(total));
  for (int turn = 0; turn < 40; ++turn) {
    total[0] = total[1] += MassLedger::Fixed{(1 << 19) - 8} << 40;
    ASSERT_TRUE(ledger.is_plausible(1, bytes)) << turn;
    ledger.pull(1, bytes, {0, 2});
    EXPECT_NEAR(ledger.weight(), 1 + 4, 1e-9) << turn;
  }
  ledger.forget(1);
  total[0] = total[1] = MassLedger::Fixed{1} << 40;
  ledger.pull(1, bytes, {0, 2});
  EXPECT_NEAR(ledger.weight(), 1 + 4, 1e-9) << "between two pushes, whatever it says of itself";
  ledger.settle();
  EXPECT_EQ(ledger.weight(), 4);
}

// What was not taken is no gift.
TEST(MassLedger, WhatIsTooMuchIsNotCredited) {
  MassLedger ledger(1, 3, true);
  std::vector<MassLedger::Fixed> total = {0, MassLedger::Fixed{1000} << 40};
  ledger.open(1);
  ledger.pull(1, std::as_bytes(std::span(total)), {0, 2});
  ledger.settle();
  for (int i = 0; i < 40; ++i) {
    total[1] += 1 << 20;
    ledger.push(1, 0.5);
    ledger.pull(1, std::as_bytes(std::span(total)), {0, 2});
    ledger.settle();
  }
  EXPECT_FALSE(ledger.is_drained_by(1)) << "it gave 6 and took 6";
  for (int i = 0; i < 40'000; ++i) {
    total[1] += 1 << 25;
    ledger.push(1, 0.5);
    ledger.pull(1, std::as_bytes(std::span(total)), {0, 2});
    ledger.settle();
  }
  EXPECT_TRUE(ledger.is_drained_by(1));
}

TEST(MassLedger, LittleWeightGrowsWhileSomebodyIsHeard) {
  MassLedger ledger(1, 3, true);
  ledger.reset(std::span<const double>(std::vector<double>{3}));
  std::vector<MassLedger::Fixed> total(2);
  const auto hear = [&](MassLedger::Fixed weight) {
    total[0] += 3 * weight;
    total[1] += weight;
    ledger.open(1);
    ledger.pull(1, std::as_bytes(std::span(total)), {0, 2});
  };
  hear(0);
  ledger.push(2, 0.5);
  hear(1 << 26);
  ledger.settle();
  EXPECT_NEAR(ledger.weight(), 0.5 + 0x1p-14, 1e-9) << "it is not little";
  ledger.push(2, 0.9997);
  const double little = ledger.weight();
  ledger.settle();
  EXPECT_EQ(ledger.weight(), little) << "nothing came";
  hear(1 << 26);
  ledger.settle();
  EXPECT_NEAR(ledger.weight(), little + 0x1p-14 + 0x1p-14, 1e-9);
  hear(1);
  ledger.settle();
  EXPECT_NEAR(ledger.weight(), little + 0x1p-14 + 0x1p-14, 1e-9) << "hardly anything came";
  EXPECT_NEAR(to_double(ledger.made()), 0x1p-14, 1e-9);
  std::vector<double> model(1);
  ledger.read(std::span(model));
  EXPECT_NEAR(model[0], 3, 1e-6);

  hear(MassLedger::Fixed{1} << 40);
  const double more = ledger.weight();
  const double given_up = (more - 1) / 8;
  ASSERT_LT(given_up, 0x1p-14);
  ledger.settle();
  EXPECT_NEAR(ledger.weight(), more - given_up, 1e-9) << "not all that is above 1";
  hear(MassLedger::Fixed{1} << 40);
  const double much = ledger.weight();
  const double rest = (0x1p-14 - given_up) * 15 / 16;  // a sixteenth was forgotten so near to 1
  ledger.settle();
  EXPECT_NEAR(ledger.weight(), much - rest, 1e-9) << "all that was made";
  EXPECT_NEAR(to_double(ledger.made()), 0x1p-14 - given_up - rest, 1e-9);
  ledger.settle();
  EXPECT_NEAR(ledger.weight(), much - rest, 1e-9) << "once";
  ledger.read(std::span(model));
  EXPECT_NEAR(model[0], 3, 1e-6);
}

// Otherwise a network in which all nodes have next to no weight when they are started again would
// stay without pushes.
TEST(MassLedger, HasALittleWeightWhereAnEdgeBeginsAgain) {
  for (const bool balanced : {true, false}) {
    MassLedger ledger(1, 3, balanced);
    ledger.reset(std::span<const double>(std::vector<double>{3}));
    for (int i = 0; i < 3; ++i) ledger.push(1, 255.0 / 256);
    const double before = ledger.weight();
    ledger.forget(1);
    EXPECT_NEAR(ledger.weight(), balanced ? 0x1p-16 : before, 1e-12);
    EXPECT_NEAR(to_double(ledger.made()), balanced ? 0x1p-16 - before : 0, 1e-9);
    std::vector<double> model(1);
    ledger.read(std::span(model));
    EXPECT_NEAR(model[0], 3, 1e-3);
  }
}

// Two neighbours of a ring, which push to each other ten times while the others do so once.
TEST(MassLedger, NoWeightIsMadeWhereTwoAreFaster) {
  constexpr Node kRing = 16;
  std::vector<MassLedger> ring(kRing, MassLedger(1, kRing, true));
  std::vector<std::map<Node, std::vector<std::byte>>> inboxes(kRing);
  for (Node i = 0; i < kRing; ++i) {
    for (const Node j : {(i + 1) % kRing, (i + kRing - 1) % kRing}) ring[i].open(j);
  }
  const auto step = [&](Node i) {
    for (const auto& [from, total] : std::exchange(inboxes[i], {})) {
      ring[i].pull(from, total, {0, 2});
    }
    ring[i].settle();
    double left = 1;
    for (const Node to : {(i + 1) % kRing, (i + kRing - 1) % kRing}) {
      const auto total = ring[i].push(to, (1.0 / 3) / left);
      inboxes[to][i] = {total.begin(), total.end()};
      left -= 1.0 / 3;
    }
  };
  for (int t = 0; t < 1000; ++t) {
    for (int quick = 0; quick < 10; ++quick) {
      for (const Node fast : {0U, 1U}) step(fast);
    }
    for (Node slow = 2; slow < kRing; ++slow) step(slow);
  }
  for (const MassLedger& ledger : ring) EXPECT_EQ(ledger.made(), 0U);
}

TEST(MassLedger, HoldsNoMoreWeightThanThereCanBe) {
  MassLedger ledger(1, 2);
  ledger.reset(std::span<const double>(std::vector<double>{3}));
  MassLedger::Fixed total[2];
  for (Node liar = 0; liar < 5; ++liar) {
    MassLedger other(1, 2);
    other.reset(std::span<const double>(std::vector<double>{3}));
    const auto bytes = other.push(9, 1);
    std::memcpy(total, bytes.data(), bytes.size());
    ledger.open(liar);
    ledger.pull(liar, std::as_bytes(std::span(total)), {0, 2});
  }
  EXPECT_EQ(ledger.weight(), 6);
  ledger.settle();
  EXPECT_NEAR(ledger.weight(), 4, 1e-9);
  std::vector<double> model(1);
  ledger.read(std::span(model));
  EXPECT_NEAR(model[0], 3, 1e-9);
}

TEST(Sgp, KnowsWhatWeightNobodyHas) {
  const std::vector<double> model(kSize, 1);
  const auto node = make_algorithm<double>(plan_by_hand(kSgp, kNodes, false), 0, std::span(model));
  for (const double weight : {-1.0, 0.0, 1e30, 17.0}) EXPECT_FALSE(node->can_weigh(weight));
  for (const double weight : {1e-9, 1.0, 16.0}) EXPECT_TRUE(node->can_weigh(weight));
}

// Of a graph in which others push more to this node than it passes on.
TEST(Sgp, HoldsNoMoreWeightThanThereCanBe) {
  const std::vector<double> model(kSize, 1);
  const auto node = make_algorithm<double>(plan_by_hand(kSgp, kNodes, false), 0, std::span(model));
  const Quadratics problem(kNodes, kSize);
  QuadraticTraining<double> training(problem, 0, 0);
  const Mesh mesh = exponential(kNodes);
  Links links = mesh.links(0);
  links.self_weight = 0.9;
  const Message<double> lie{.first = model, .scalar = 16, .has_scalar = true};
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(node->adapt(training, {}, links));
    std::vector<Received<double>> inbox;
    for (const auto& sender : links.senders) inbox.push_back({sender.node, 0.5, &lie});
    node->absorb(links, inbox, {0, kSize});
    node->conclude(links, inbox);
  }
  ASSERT_TRUE(node->adapt(training, {}, links));
  EXPECT_EQ(node->message(0).scalar, 16);
}

TEST(PushSum, WhatCameBetweenTwoPushesCountsTogether) {
  PushSum<double> node(false, 4, std::vector<double>{1});
  const AsyncMessage<double> message{.vector = {1}, .scalar = 3, .has_scalar = true};
  Rng rng({.seed = 1});
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(node.can_weigh(2, message.scalar));
      EXPECT_TRUE(node.receive(2, message).empty());
    }
    EXPECT_FALSE(node.can_weigh(2, message.scalar));
    EXPECT_TRUE(node.can_weigh(3, message.scalar)) << "another member's";
    EXPECT_LE(node.weight(), 8);
    const std::vector<double> update{0};
    const std::vector<topologies::Weight> receivers{{1, 0.5}};
    (void)node.trained(update, {0, 0.5, {}, receivers}, rng);
  }
}

TEST(Sgp, ARestartedNodeStartsFromTheModelItWasGiven) {
  const Quadratics problem(kNodes, kSize);
  for (const bool lossy : {false, true}) {
    Fleet<double> fleet(plan_by_hand(kSgp, kNodes, lossy), problem, zeros(kNodes, kSize),
                        {.loss = lossy ? 0.1 : 0});
    fleet.run(exponential(kNodes), 100, 0.05);
    const Row given(kSize, 0.25);
    fleet.node(3).restart(given);
    EXPECT_LT(distance({fleet.models()[3]}, {given}), 1e-11);
    fleet.run(exponential(kNodes), 2000, 0.002);
    EXPECT_LT(distance(fleet.models(), problem.optima()), 0.1);
  }
}

}  // namespace
}  // namespace starling::gossip
