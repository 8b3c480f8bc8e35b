// SPDX-License-Identifier: Apache-2.0
// Robust mixing against values by hand, its bounds against a search for the worst case, and what is
// not a number.
#include "gossip/algorithms/robust_mixing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gossip/algorithms/robust_fit.h"
#include "tests/gossip/harness.h"

namespace starling::gossip {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Neighbour {
  double weight = 0;
  Row x;
};

// What robust mixing makes of these around x = 0.
struct Mixed {
  Row flow;
  std::vector<Bounded> report;
  std::vector<double> kept() const {
    std::vector<double> parts;
    for (const Bounded& neighbour : report) parts.push_back(neighbour.kept);
    return parts;
  }
};

template <class T>
Mixed mix_around(const std::vector<T>& x, const std::vector<Neighbour>& neighbours,
                 RobustMixing<T>& robust, double bad_weight) {
  std::vector<std::vector<T>> vectors;
  MixTerms<T> terms;
  for (const Neighbour& neighbour : neighbours) {
    vectors.emplace_back(neighbour.x.begin(), neighbour.x.end());
  }
  for (std::size_t k = 0; k < vectors.size(); ++k) {
    terms.add(vectors[k].data(), neighbours[k].weight);
  }
  robust.bound(terms, x, bad_weight);
  std::vector<T> flow(x.size());
  mix_flow<T>(terms, x.data(), flow.data(), {0, x.size()});
  return {Row(flow.begin(), flow.end()), {robust.report().begin(), robust.report().end()}};
}

Mixed mix_with(const std::string& rule, const std::vector<Neighbour>& neighbours, double b) {
  RobustMixing<double> robust({.rule = rule});
  return mix_around(Row(neighbours.front().x.size()), neighbours, robust, b);
}

double square(const Row& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum;
}

void expect_near(const Row& found, const Row& expected) {
  EXPECT_LT(distance({found}, {expected}), 1e-15)
      << ::testing::PrintToString(found) << " for " << ::testing::PrintToString(expected);
}

const std::vector<Neighbour> kEqual = {
    {0.2, {0, 2}}, {0.2, {10, 0}}, {0.2, {1, 0}}, {0.2, {0, -3}}};
const std::vector<Neighbour> kUnequal = {
    {0.2, {0, 2}}, {0.1, {10, 0}}, {0.1, {1, 0}}, {0.3, {0, -3}}};

// Beyond the distance 2 lie weights of 0.4 = 2 b: tau = 2.
TEST(RobustMixing, ClipShortensToTheDistanceBeyondWhichTwiceTheBadWeightLies) {
  const Mixed mixed = mix_with("clip", kEqual, 0.2);
  expect_near(mixed.flow, {0.2 * 1 + 0.2 * 2, 0.2 * 2 - 0.2 * 2});
  EXPECT_THAT(mixed.kept(), ElementsAre(1, 2.0 / 10, 1, 2.0 / 3));
  // 0.6 = 2 b only beyond the nearest: tau = 1.
  expect_near(mix_with("clip", kUnequal, 0.3).flow, {0.1 + 0.1, 0.2 - 0.3});
  // Nowhere 2 b: nothing is mixed.
  expect_near(mix_with("clip", kEqual, 0.4).flow, {0, 0});
}

TEST(RobustMixing, RemoveLeavesOutTheFarthestWeightAndPartOfTheOneOnTheBoundary) {
  const Mixed mixed = mix_with("remove", kEqual, 0.2);
  expect_near(mixed.flow, {0.2, 0.4 - 0.6});
  EXPECT_THAT(mixed.kept(), ElementsAre(1, 0, 1, 1));
  expect_near(mix_with("remove", kUnequal, 0.3).flow, {0.1, 0.4 - 0.1 * 3});
  expect_near(mix_with("remove", kEqual, 0.8).flow, {0, 0});
}

TEST(RobustMixing, BadNeighboursWeighAsTheHeaviestOfTheRow) {
  const std::vector<topologies::Weight> senders = {{1, 0.1}, {2, 0.4}, {5, 0.2}};
  const Links links{.node = 0, .self_weight = 0.3, .senders = senders};
  EXPECT_EQ(RobustMixing<float>({.rule = "clip", .bad = 0}).bad_weight(links), 0);
  EXPECT_EQ(RobustMixing<float>({.rule = "clip", .bad = 1}).bad_weight(links), 0.4);
  EXPECT_EQ(RobustMixing<float>({.rule = "clip", .bad = 2}).bad_weight(links), 0.4 + 0.2);
  EXPECT_NEAR(RobustMixing<float>({.rule = "clip", .bad = 9}).bad_weight(links), 0.7, 1e-15);
}

// Weights that are rounded to float, summed in any order, still count as equal.
TEST(RobustMixing, EqualWeightsAreRemovedWhole) {
  RobustMixing<float> robust({.rule = "remove", .bad = 3});
  std::vector<Neighbour> neighbours;
  for (int k = 0; k < 10; ++k) neighbours.push_back({1.0 / 11, {k + 1.0}});
  const Mixed mixed = mix_around(std::vector<float>(1), neighbours, robust, 3.0 / 11);
  EXPECT_THAT(mixed.kept(), ElementsAre(1, 1, 1, 1, 1, 1, 1, 0, 0, 0));
}

// ||F - sum over honest of w d||^2 <= rho b sum over honest of w ||d||^2, for any place of liars of
// weight b at most. The largest rho found.
double worst_ratio(const std::string& rule, bool equal_weights) {
  Rng rng({.seed = 7});
  double worst = 0;
  for (int draw = 0; draw < 100'000; ++draw) {
    const auto size = 1 + rng.below(3);
    const auto honest = 1 + rng.below(5), liars = 1 + rng.below(3);
    std::vector<Neighbour> all;
    Row weights;
    double spread = 0;
    Row wanted(size);
    for (std::size_t k = 0; k < honest + liars; ++k) {
      Neighbour neighbour{equal_weights ? 1 : rng.uniform(0.1, 1), Row(size)};
      const double length = rng.uniform() < 0.5 ? 1 : rng.uniform(0, 2);
      for (double& value : neighbour.x) value = length * (rng.uniform() < 0.5 ? 1 : -1);
      if (k < honest) {
        spread += neighbour.weight * square(neighbour.x);
        for (std::size_t i = 0; i < size; ++i) wanted[i] += neighbour.weight * neighbour.x[i];
      }
      weights.push_back(neighbour.weight);
      all.push_back(std::move(neighbour));
    }
    std::ranges::sort(weights, std::greater());
    double b = 0;
    for (std::size_t k = 0; k < liars; ++k) b += weights[k];
    const Row flow = mix_with(rule, all, b).flow;
    if (spread == 0) continue;
    for (std::size_t i = 0; i < size; ++i) wanted[i] -= flow[i];
    worst = std::max(worst, square(wanted) / (b * spread));
  }
  return worst;
}

TEST(RobustMixing, ErrsNoMoreThanTheRulesBoundWhereverLiarsAre) {
  constexpr double kRounding = 1e-5;
  EXPECT_LE(worst_ratio("clip", true), 2 + kRounding);
  EXPECT_LE(worst_ratio("clip", false), 3);
  EXPECT_LE(worst_ratio("remove", true), 4 + kRounding);
  EXPECT_LE(worst_ratio("remove", false), 4 + kRounding);
  // The search finds bad cases.
  EXPECT_GT(worst_ratio("clip", true), 1.9);
  EXPECT_GT(worst_ratio("remove", true), 3.9);
}

// What cannot be subtracted, or only be scaled to nothing, in float takes part in nothing.
TEST(RobustMixing, WhatIsNoNumberOrAbsurdIsNeverMixed) {
  const float huge = std::numeric_limits<float>::max();
  const std::vector<float> x = {-huge / 2, 1};
  for (const std::string rule : {"clip", "remove"}) {
    for (const double absurd :
         {static_cast<double>(huge), std::nan(""), std::numeric_limits<double>::infinity()}) {
      RobustMixing<float> robust({.rule = rule});
      const std::vector<Neighbour> neighbours = {{0.2, {absurd, 1}},
                                                 {0.2, {-huge / 2, 1.5}},
                                                 {0.2, {-huge / 2, 1.5}},
                                                 {0.2, {-huge / 2, 1.5}}};
      const Mixed mixed = mix_around(x, neighbours, robust, 0.2);
      EXPECT_EQ(mixed.flow[0], 0) << rule << absurd;
      EXPECT_NEAR(mixed.flow[1], 0.3, 1e-7) << rule << absurd;
      EXPECT_EQ(mixed.report[0].kept, 0);
      EXPECT_TRUE(mixed.report[0].is_far);
      EXPECT_FALSE(mixed.report[1].is_far);
    }
  }
  RobustMixing<float> robust({.rule = "clip"});
  const Mixed mixed =
      mix_around(std::vector<float>(2),
                 {{0.2, {1e38, 0}}, {0.2, {0, 1}}, {0.2, {0, 1}}, {0.2, {0, 1}}}, robust, 0.2);
  EXPECT_NEAR(mixed.flow[1], 0.6, 1e-6);
  EXPECT_LE(std::abs(mixed.flow[0]), 0.2 * 1.001);
  EXPECT_TRUE(mixed.report[0].is_far);
}

TEST(RobustMixing, FarIsWhatIsMuchFartherThanTheOthers) {
  const auto is_far = [](double distance, double others) {
    return mix_with("clip", {{0.2, {distance}}, {0.2, {others}}, {0.2, {others}}}, 0.2)
        .report[0]
        .is_far;
  };
  EXPECT_FALSE(is_far(7.9, 1));
  EXPECT_TRUE(is_far(8.1, 1));
  // Nearly equal models: by the norm of the own, and 1.
  EXPECT_FALSE(is_far(0.0079, 0));
  EXPECT_TRUE(is_far(0.0081, 0));
  // Where every neighbour may be bad nobody says who is.
  EXPECT_FALSE(mix_with("clip", {{0.2, {100}}}, 0.2).report[0].is_far);
}

Plan plan_with(const AlgorithmOptions& options, const RobustOptions& robust, Node nodes) {
  Plan plan = plan_by_hand(options, nodes);
  plan.robust = robust;
  return plan;
}

const std::vector<AlgorithmOptions> kAble = {{.name = "dpsgd"},
                                             {.name = "dpsgd", .order = "combine-while-adapt"},
                                             {.name = "epidemic"},
                                             {.name = "qg-dsgdm"},
                                             {.name = "diloco"}};

TEST(RobustAlgorithms, WithNobodyBadTheBitsAreThoseWithoutARule) {
  constexpr Node kNodes = 6;
  const Quadratics problem(kNodes, 7);
  const Matrix start = scattered(kNodes, 7);
  for (const AlgorithmOptions& options : kAble) {
    Fleet<float> plain(plan_by_hand(options, kNodes), problem, start);
    plain.run(complete(kNodes), 30, 0.1);
    for (const std::string rule : {"clip", "remove"}) {
      Fleet<float> bound(plan_with(options, {.rule = rule, .bad = 0}, kNodes), problem, start);
      bound.run(complete(kNodes), 30, 0.1);
      EXPECT_EQ(bound.models(), plain.models()) << options.name << ' ' << rule;
      EXPECT_EQ(bound.node(0).bounded().size(), kNodes - 1U);
    }
    EXPECT_TRUE(plain.node(0).bounded().empty());
  }
}

// The mean is kept by no robust rule; honest nodes agree on something near.
TEST(RobustAlgorithms, HonestNodesComeTogetherUnderEachRule) {
  constexpr Node kNodes = 8;
  const Quadratics problem(kNodes, 5);
  const Matrix start = scattered(kNodes, 5);
  for (const AlgorithmOptions& options : kAble) {
    for (const std::string rule : {"clip", "remove"}) {
      Fleet<double> fleet(plan_with(options, {.rule = rule, .bad = 1}, kNodes), problem, start);
      fleet.run(complete(kNodes), 400, 0.0);
      const Matrix models = fleet.models();
      for (const Row& model : models) {
        EXPECT_LT(distance({model}, {models[0]}), 1e-3) << options.name << ' ' << rule;
      }
    }
  }
}

TEST(RobustFit, AlgorithmsThatMixNoModelsAreRefusedByName) {
  for (const std::string_view name : kAlgorithms) {
    const AlgorithmOptions options{.name = std::string(name)};
    const auto spec = name == "relaysgd" ? "path" : name == "epidemic" ? "complete" : "hypercube";
    const auto made = topologies::Topology::make(
                          {.spec = spec, .nodes = 8, .mixing = name == "d2" ? "lazy" : "own"})
                          .value();
    const auto fit = check_fit(options, {.topology = made.get(), .robust = {.rule = "clip"}});
    ASSERT_TRUE(check_fit(options, {.topology = made.get()})) << name;
    EXPECT_EQ(static_cast<bool>(fit), traits(options).mixes_models) << name;
    if (fit) continue;
    EXPECT_EQ(fit.error().code(), "algorithm-robust");
    EXPECT_THAT(fit.error().message(), HasSubstr("dpsgd, epidemic, qg-dsgdm, diloco"));
  }
}

std::vector<std::string> warnings_on(const std::string& spec, const RobustOptions& robust) {
  return robust_warnings(robust, *topologies::Topology::make({.spec = spec, .nodes = 16}).value());
}

TEST(RobustFit, WhatARuleCannotPromiseIsSaid) {
  EXPECT_TRUE(warnings_on("ring", {}).empty());
  EXPECT_TRUE(warnings_on("ring", {.rule = "clip", .bad = 0}).empty());
  EXPECT_TRUE(warnings_on("complete", {.rule = "clip", .bad = 3}).empty());
  EXPECT_TRUE(warnings_on("complete", {.rule = "remove", .bad = 1}).empty());
  EXPECT_THAT(warnings_on("complete", {.rule = "remove", .bad = 2}),
              ElementsAre(HasSubstr("may hold, but is sure only up to 1")));
  EXPECT_THAT(warnings_on("ring", {.rule = "clip"}),
              ElementsAre(HasSubstr("leaves 16 of 16 nodes of ring nothing to mix"),
                          HasSubstr("no rule is sure to hold, which needs 0 at most here")));
  EXPECT_THAT(warnings_on("torus:4x4", {.rule = "remove"}),
              ElementsAre(HasSubstr("torus:4x4 (mu2 2): with 1 lying neighbour of each node")));
  EXPECT_THAT(warnings_on("exponential", {.rule = "clip"}),
              ElementsAre(HasSubstr("only for static graphs with symmetric weights")));
  EXPECT_THAT(warnings_on("one-peer-exponential", {.rule = "remove"}),
              ElementsAre(HasSubstr("leaves 16 of 16 nodes"), HasSubstr("only for static graphs")));
}

}  // namespace
}  // namespace starling::gossip
