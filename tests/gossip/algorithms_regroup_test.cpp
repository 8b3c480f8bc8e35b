// SPDX-License-Identifier: Apache-2.0
// Members change between the local steps and their mixing: what was trained counts, and counts
// once, whatever the algorithm shares with the members.
#include <gtest/gtest.h>

#include <algorithm>

#include "gossip/algorithms/gradient_tracking.h"
#include "tests/gossip/harness.h"

namespace starling::gossip {
namespace {

constexpr Node kMembers = 6;
constexpr std::size_t kDimensions = 5;
constexpr double kStep = 0.1;

// All nodes have the same curvature: then the mean of the models moves by the mean gradient at the
// mean model, however different they are.
Quadratics same_curvature() {
  Quadratics problem(kMembers, kDimensions);
  for (Matrix& a : problem.a) a = problem.a[0];
  return problem;
}

Row mean_row(const Matrix& rows) {
  Row mean(rows[0].size());
  for (const Row& row : rows) {
    for (std::size_t k = 0; k < mean.size(); ++k) {
      mean[k] += row[k] / static_cast<double>(rows.size());
    }
  }
  return mean;
}

Row descended(const Row& x, const Row& gradient) { return sum({x}, {gradient}, -kStep)[0]; }

struct Regrouped {
  std::string name;
  bool lossy = false;
};

class Regroup : public ::testing::TestWithParam<Regrouped> {
 public:
  static Plan plan() {
    return plan_by_hand({.name = GetParam().name, .compressor = "none", .gossip_rounds = 1},
                        kMembers, GetParam().lossy);
  }
  static double tolerance() { return GetParam().lossy ? 1e-9 : 1e-12; }
};

TEST_P(Regroup, EveryTrainedPhaseCountsOnce) {
  const Quadratics problem = same_curvature();
  const bool delayed = GetParam().name == "detag";  // it goes along the gradient of before
  const int local_steps = delayed ? 1 : 3;
  Fleet<double> fleet(plan(), problem, scattered(kMembers, kDimensions));
  const Mesh few = ring(kMembers, 0.2), all = complete(kMembers);
  Row expected = mean_row(fleet.models());
  const auto gradient = [&] { return mean_row(problem.gradients(Matrix(kMembers, expected))); };
  Row last(kDimensions);
  for (int t = 0; t < 20; ++t) {
    for (int k = 0; k < local_steps; ++k) {
      const Row now = gradient();
      expected = descended(expected, delayed ? last : now);
      last = now;
    }
    fleet.step_across(t % 2 == 0 ? few : all, t % 2 == 0 ? all : few, kStep, local_steps);
    ASSERT_LT(distance({fleet.mean()}, {expected}), tolerance()) << t;
  }
}

// After changes of members it converges as ever: nothing of the earlier ones is left behind.
TEST_P(Regroup, WhereItConvergesToIsTheSame) {
  const std::string& name = GetParam().name;
  const Quadratics problem(kMembers, kDimensions);
  const Mesh mesh = name == "relaysgd" ? tree(kMembers) : ring(kMembers, 0.2);
  Fleet<double> undisturbed(plan(), problem, scattered(kMembers, kDimensions));
  undisturbed.run(mesh, 3000, kStep);
  Fleet<double> fleet(plan(), problem, scattered(kMembers, kDimensions));
  fleet.run(mesh, 10, kStep);
  for (int t = 0; t < 10; ++t) fleet.step_across(mesh, mesh, kStep);
  fleet.run(mesh, 3000, kStep);
  EXPECT_LT(distance(fleet.models(), undisturbed.models()), 1e-8);
  if (name == "gradient-tracking" || name == "d2" || name == "detag") {
    EXPECT_LT(distance(fleet.models(), problem.optima()), 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Regroup,
                         ::testing::Values(Regrouped{"dpsgd"}, Regrouped{"sgp"},
                                           Regrouped{"sgp", true}, Regrouped{"gradient-tracking"},
                                           Regrouped{"choco"}, Regrouped{"d2"},
                                           Regrouped{"relaysgd"}, Regrouped{"detag"}),
                         [](const auto& instance) {
                           std::string name = instance.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name + (instance.param.lossy ? "_lossy" : "");
                         });

// On an uneven graph weights differ from 1: a local step counts as one of a node of weight 1.
TEST(RegroupedSgp, KeepsItsStepAndNotItsWeight) {
  const Quadratics problem(kMembers, kDimensions);
  Fleet<double> fleet(plan_by_hand({.name = "sgp"}, kMembers), problem,
                      scattered(kMembers, kDimensions));
  const Mesh mesh = uneven(kMembers);
  fleet.run(mesh, 9, kStep);
  const Matrix before = fleet.models();
  const Matrix expected = sum(before, problem.gradients(before), -kStep);
  Matrix alone = zeros(kMembers, kMembers);  // mixed with nobody, so that only the step shows
  for (Node i = 0; i < kMembers; ++i) alone[i][i] = 1;
  fleet.step_across(mesh, Mesh(alone), kStep);
  EXPECT_LT(distance(fleet.models(), expected), 1e-12);
}

TEST(RegroupedGradientTracking, ItsCorrectionsBeginWithTheTrainedStepsAndCancel) {
  const Quadratics problem(kMembers, kDimensions);
  Fleet<double> fleet(plan_by_hand({.name = "gradient-tracking"}, kMembers), problem,
                      scattered(kMembers, kDimensions));
  fleet.run(ring(kMembers), 30, kStep, 4);
  fleet.step_across(ring(kMembers), complete(kMembers), kStep, 4);
  Row total(kDimensions);
  for (Node i = 0; i < kMembers; ++i) {
    const auto correction = dynamic_cast<GradientTracking<double>&>(fleet.node(i)).correction();
    EXPECT_GT(std::abs(correction[0]), 1e-6) << i;
    for (std::size_t k = 0; k < kDimensions; ++k) total[k] += correction[k];
  }
  EXPECT_LT(largest({total}), 1e-12);
}

}  // namespace
}  // namespace starling::gossip
