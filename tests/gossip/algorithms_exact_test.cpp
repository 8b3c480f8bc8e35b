// SPDX-License-Identifier: Apache-2.0
// The algorithms that reach the optimum of heterogeneous data at a constant rate: gradient
// tracking, D^2, RelaySGD, DeTAG.
#include <gtest/gtest.h>

#include <deque>

#include "gossip/algorithms/d2.h"
#include "gossip/algorithms/detag.h"
#include "gossip/algorithms/gradient_tracking.h"
#include "tests/gossip/harness.h"

namespace starling::gossip {
namespace {

constexpr Node kNodes = 8;
constexpr std::size_t kSize = 5;
constexpr double kRate = 0.05;

const AlgorithmOptions kTracking = {.name = "gradient-tracking"};
const AlgorithmOptions kD2 = {.name = "d2"};
const AlgorithmOptions kRelay = {.name = "relaysgd"};

// D^2 wants the smallest eigenvalue above -1/3: (I + W) / 2 of the ring.
Mesh lazy_ring() { return ring(kNodes, 1.0 / 6); }
// The lazy ring's second largest modulus.
double lazy_slem() { return (2 + std::cos(2 * std::acos(-1.0) / kNodes)) / 3; }

Plan detag_plan(int rounds = 0) {
  Plan plan = plan_by_hand({.name = "detag", .gossip_rounds = rounds}, kNodes);
  plan.slem = lazy_slem();
  if (rounds == 0) plan.options.gossip_rounds = accelerated_rounds(plan.slem);
  return plan;
}

// All local steps on `x`, each less rate * correction.
Matrix stepped(const Quadratics& problem, Matrix x, double rate, int steps,
               const Matrix& correction) {
  for (int k = 0; k < steps; ++k) x = sum(sum(x, problem.gradients(x), -rate), correction, -rate);
  return x;
}

TEST(GradientTracking, IsDsgtForOneLocalStep) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = ring(kNodes);
  Matrix x = scattered(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(kTracking, kNodes), problem, x);
  Matrix g = problem.gradients(x), y = g;
  for (int t = 0; t < 60; ++t) {
    x = product(mesh.w(), sum(x, y, -kRate));
    const Matrix next = problem.gradients(x);
    y = sum(sum(product(mesh.w(), y), next), g, -1);
    g = next;
  }
  fleet.run(mesh, 60, kRate);
  EXPECT_LT(distance(fleet.models(), x), 1e-12);
}

TEST(GradientTracking, IsKgtForSeveral) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = ring(kNodes);
  const int steps = 4;
  Matrix x = scattered(kNodes, kSize), c = zeros(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(kTracking, kNodes), problem, x);
  for (int t = 0; t < 60; ++t) {
    const Matrix last = stepped(problem, x, kRate, steps, c);
    Matrix z = zeros(kNodes, kSize);
    z = sum(sum(z, x, 1 / (kRate * steps)), last, -1 / (kRate * steps));
    c = sum(sum(c, z, -1), product(mesh.w(), z));
    x = product(mesh.w(), last);
  }
  fleet.run(mesh, 60, kRate, steps);
  EXPECT_LT(distance(fleet.models(), x), 1e-12);
}

TEST(GradientTracking, CorrectionsSumToZeroAtEveryStep) {
  const Quadratics problem(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(kTracking, kNodes), problem, scattered(kNodes, kSize),
                      {.noise = 1});
  for (int t = 0; t < 500; ++t) {
    fleet.step(ring(kNodes), kRate, 1 + t % 3);
    for (std::size_t k = 0; k < kSize; ++k) {
      double total = 0;
      for (Node i = 0; i < kNodes; ++i) {
        total += dynamic_cast<GradientTracking<double>&>(fleet.node(i)).correction()[k];
      }
      ASSERT_NEAR(total, 0, 1e-12);
    }
  }
}

TEST(D2, IsThePapersIteration) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = lazy_ring();
  Matrix before = scattered(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(kD2, kNodes), problem, before);
  Matrix g = problem.gradients(before);
  Matrix x = product(mesh.w(), sum(before, g, -kRate));
  for (int t = 1; t < 60; ++t) {
    const Matrix now = problem.gradients(x);
    const Matrix extrapolated = sum(sum(x, x), before, -1);
    before = x;
    x = product(mesh.w(), sum(sum(extrapolated, now, -kRate), g, kRate));
    g = now;
  }
  fleet.run(mesh, 60, kRate);
  EXPECT_LT(distance(fleet.models(), x), 1e-12);
}

TEST(D2, TakesSeveralLocalStepsAndAChangingRate) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = lazy_ring();
  Matrix x = scattered(kNodes, kSize), c = zeros(kNodes, kSize);  // c in units of the model
  Fleet<double> fleet(plan_by_hand(kD2, kNodes), problem, x);
  double last = 0;
  for (int t = 0; t < 60; ++t) {
    const double rate = kRate / (1 + 0.05 * t);
    const int steps = 1 + t % 4;
    if (last != 0) c = sum(zeros(kNodes, kSize), c, rate * steps / last);
    const Matrix local = stepped(problem, x, rate, steps, zeros(kNodes, kSize));
    x = product(mesh.w(), sum(local, c));
    c = sum(x, local, -1);
    last = rate * steps;
    fleet.step(mesh, rate, steps);
  }
  EXPECT_LT(distance(fleet.models(), x), 1e-12);
}

TEST(D2, DivergesBelowAThirdAsItsRefusalSays) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = ring(kNodes, 0.45);  // smallest eigenvalue -0.8
  Fleet<double> fleet(plan_by_hand(kD2, kNodes), problem, scattered(kNodes, kSize));
  fleet.run(mesh, 200, kRate);
  EXPECT_GT(distance(fleet.models(), problem.optima()), 1e6);
}

// Distances in the tree, from powers of its matrix.
std::vector<std::vector<int>> tree_distances(const Mesh& mesh) {
  const Node n = mesh.nodes();
  std::vector<std::vector<int>> result(n, std::vector<int>(n, -1));
  Matrix power = zeros(n, n);
  for (Node i = 0; i < n; ++i) power[i][i] = 1;
  for (int d = 0; d < static_cast<int>(n); ++d, power = product(power, mesh.w())) {
    for (Node i = 0; i < n; ++i) {
      for (Node j = 0; j < n; ++j) {
        if (power[i][j] > 1e-12 && result[i][j] < 0) result[i][j] = d;
      }
    }
  }
  return result;
}

// x_i^{t+1} = 1/n sum_j of x_j after its local steps, as old as its way is long; what has not come
// yet is replaced by the node's own. No edge, no relay, no count.
TEST(RelaySgd, AveragesAllNodesDelayedByTheirDistance) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = tree(kNodes);
  const auto far = tree_distances(mesh);
  for (const int steps : {1, 3}) {
    Matrix x = scattered(kNodes, kSize);
    Fleet<double> fleet(plan_by_hand(kRelay, kNodes), problem, x);
    std::deque<Matrix> local;  // newest first
    for (int t = 0; t < 40; ++t) {
      local.push_front(stepped(problem, x, kRate, steps, zeros(kNodes, kSize)));
      for (Node i = 0; i < kNodes; ++i) {
        x[i] = Row(kSize);
        for (Node j = 0; j < kNodes; ++j) {
          const std::size_t age = i == j ? 0 : static_cast<std::size_t>(far[i][j] - 1);
          const Row& from = age < local.size() ? local[age][j] : local[0][i];
          for (std::size_t k = 0; k < kSize; ++k) x[i][k] += from[k] / kNodes;
        }
      }
      fleet.step(mesh, kRate, steps);
      ASSERT_LT(distance(fleet.models(), x), 1e-12) << t;
    }
  }
}

TEST(RelaySgd, AgreesWithoutGradients) {
  const Quadratics problem(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(kRelay, kNodes), problem, scattered(kNodes, kSize));
  fleet.run(tree(kNodes), 300, 0);
  const Matrix x = fleet.models();
  EXPECT_LT(distance(x, Matrix(kNodes, x[0])), 1e-13);
}

TEST(RelaySgd, KeepsEqualModelsToTheBitAndStaysBoundedUnderLoss) {
  const Quadratics problem(kNodes, kSize);
  Fleet<float> still(plan_by_hand(kRelay, kNodes), problem, Matrix(kNodes, scattered(1, kSize)[0]),
                     {.loss = 0.2});
  const Matrix before = still.models();
  still.run(tree(kNodes), 100, 0);
  EXPECT_EQ(still.models(), before);
  for (const double loss : {0.01, 0.1}) {
    Fleet<double> fleet(plan_by_hand(kRelay, kNodes), problem, zeros(kNodes, kSize),
                        {.loss = loss});
    fleet.run(tree(kNodes), 5000, 0.01);
    EXPECT_LT(distance(fleet.models(), problem.optima()), 0.5) << loss;
  }
}

// z' = (1 + a) W z - a z_before, R times.
Matrix accelerated(const Mesh& mesh, const Matrix& z0, int rounds) {
  const double root = std::sqrt(1 - lazy_slem() * lazy_slem());
  const double a = (1 - root) / (1 + root);
  Matrix before = z0, z = z0;
  for (int r = 0; r < rounds; ++r) {
    const Matrix mixed = product(mesh.w(), z);
    const Matrix next = sum(sum(mixed, mixed, a), before, -a);
    before = z;
    z = next;
  }
  return z;
}

TEST(Detag, IsThePapersIteration) {
  const Quadratics problem(kNodes, kSize);
  const Mesh mesh = lazy_ring();
  const int rounds = 5;
  Matrix x = scattered(kNodes, kSize);
  Fleet<double> fleet(detag_plan(rounds), problem, x);
  Matrix y = zeros(kNodes, kSize), g = y;
  for (int phase = 0; phase < 12; ++phase) {
    const Matrix now = problem.gradients(x);
    const Matrix mixed = accelerated(mesh, y, rounds);
    x = sum(accelerated(mesh, x, rounds), mixed, -kRate);
    y = sum(sum(mixed, now), g, -1);
    g = now;
  }
  fleet.run(mesh, 12 * rounds, kRate, 2);  // both samples of an exchange are the full gradient
  EXPECT_LT(distance(fleet.models(), x), 1e-12);
  EXPECT_EQ(fleet.losses(), 12.0 * rounds * 2 * kNodes);
}

// The reference's values for a ring of 16: a = 0.521476, 0.722133 a round.
TEST(Detag, AcceleratesAsMuchAsChebyshevAllows) {
  EXPECT_NEAR(acceleration(0.949253), 0.521476, 1e-6);
  EXPECT_NEAR(std::sqrt(acceleration(0.949253)), 0.722133, 1e-6);
  EXPECT_EQ(accelerated_rounds(0), 1);
  for (const double slem : {0.1, 0.5, 0.9, 0.99, 0.999}) {
    const int rounds = accelerated_rounds(slem);
    const double a = acceleration(slem);
    double worst = 0, one_less = 0;
    for (int k = -100; k <= 100; ++k) {
      const double lambda = slem * k / 100;
      double before = 1, z = 1;
      for (int r = 0; r < rounds; ++r) {
        if (r == rounds - 1) one_less = std::max(one_less, std::abs(z));
        before = std::exchange(z, (1 + a) * lambda * z - a * before);
      }
      worst = std::max(worst, std::abs(z));
    }
    EXPECT_LE(worst, 0.25 + 1e-12) << slem;
    EXPECT_GT(one_less, 0.25) << slem;
  }
}

TEST(Exact, ReachTheOptimumAtAConstantRate) {
  const Quadratics problem(kNodes, kSize);
  const Matrix start = scattered(kNodes, kSize);
  const auto reaches = [&](const Plan& plan, const Mesh& mesh, int exchanges, int steps) {
    Fleet<double> fleet(plan, problem, start);
    fleet.run(mesh, exchanges, kRate, steps);
    EXPECT_LT(distance(fleet.models(), problem.optima()), 1e-10)
        << plan.options.name << ", H = " << steps;
  };
  reaches(plan_by_hand(kTracking, kNodes), ring(kNodes), 2000, 1);
  reaches(plan_by_hand(kTracking, kNodes), ring(kNodes), 2000, 4);
  reaches(plan_by_hand(kD2, kNodes), lazy_ring(), 2000, 1);
  reaches(plan_by_hand(kRelay, kNodes), tree(kNodes), 3000, 1);
  reaches(detag_plan(), lazy_ring(), 20000, 1);
  Fleet<double> plain(plan_by_hand({.name = "dpsgd"}, kNodes), problem, start);
  plain.run(ring(kNodes), 2000, kRate);
  EXPECT_GT(distance(plain.models(), problem.optima()), 1e-2);
}

TEST(GradientTracking, ReachesTheOptimumOnAMatrixThatChangesAndIsDirected) {
  const Quadratics problem(kNodes, kSize);
  Fleet<double> fleet(plan_by_hand(kTracking, kNodes), problem, scattered(kNodes, kSize));
  for (int t = 0; t < 3000; ++t) {
    fleet.step(circulant(kNodes, {Node{1} << (t % 3)}, 0.5), 0.03, 1 + t / 2000);
  }
  EXPECT_LT(distance(fleet.models(), problem.optima()), 1e-10);
}

TEST(Exact, DoNotDependOnHowColumnsAreDivided) {
  const Quadratics problem(kNodes, 67);
  const Matrix start = scattered(kNodes, 67);
  for (const Plan& plan : {plan_by_hand(kTracking, kNodes), plan_by_hand(kD2, kNodes),
                           plan_by_hand(kRelay, kNodes), detag_plan()}) {
    const Mesh mesh = plan.options.name == "relaysgd" ? tree(kNodes) : lazy_ring();
    Fleet<float> whole(plan, problem, start);
    Fleet<float> divided(plan, problem, start, {.parts = 7});
    whole.run(mesh, 20, kRate, 2);
    divided.run(mesh, 20, kRate, 2);
    EXPECT_EQ(whole.models(), divided.models()) << plan.options.name;
  }
}

TEST(Exact, ARestartedNodeStartsFromTheModelItWasGiven) {
  const Quadratics problem(kNodes, kSize);
  for (const Plan& plan : {plan_by_hand(kTracking, kNodes), plan_by_hand(kD2, kNodes),
                           plan_by_hand(kRelay, kNodes), detag_plan()}) {
    const Mesh mesh = plan.options.name == "relaysgd" ? tree(kNodes) : lazy_ring();
    Fleet<double> fleet(plan, problem, zeros(kNodes, kSize));
    fleet.run(mesh, 11, kRate);
    const Row given(kSize, 0.25);
    fleet.node(3).restart(given);
    EXPECT_EQ(fleet.models()[3], given) << plan.options.name;
    fleet.run(mesh, 200, kRate);
    EXPECT_LT(distance(fleet.models(), problem.optima()), 10) << plan.options.name;
  }
}

}  // namespace
}  // namespace starling::gossip
