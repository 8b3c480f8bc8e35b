// SPDX-License-Identifier: Apache-2.0
// How far float may be from double after how long: every algorithm, 40,000 exchanges, the same
// noise. Roundings must not add up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/gossip/harness.h"

namespace starling::gossip {
namespace {

constexpr Node kNodes = 8;
constexpr std::size_t kSize = 3;

struct FloatCase {
  AlgorithmOptions options;
  Mesh mesh;
  bool lossy = false;
  bool jumps = false;  // a rounding may tip a sign, and another way from there on is as good
};

std::vector<FloatCase> float_cases() {
  const Mesh own = ring(kNodes), lazy = ring(kNodes, 1.0 / 6);
  return {{{.name = "dpsgd"}, own},
          {{.name = "dpsgd", .order = "combine-while-adapt"}, own},
          {{.name = "sgp"}, uneven(kNodes)},
          {{.name = "sgp"}, uneven(kNodes), true},
          {{.name = "gradient-tracking"}, own},
          {{.name = "choco", .compressor = "none"}, own},
          {{.name = "choco", .compressor = "sign"}, own, false, true},
          {{.name = "d2"}, lazy},
          {{.name = "epidemic"}, own},
          {{.name = "qg-dsgdm"}, own},
          {{.name = "relaysgd"}, tree(kNodes)},
          {{.name = "diloco"}, own},
          {{.name = "detag", .gossip_rounds = 4}, lazy},
          {{.name = "all-reduce"}, own},
          {{.name = "diloco-all"}, own}};
}

// Largest distances between float and double in eight windows of 5,000 exchanges.
std::vector<double> distances(const FloatCase& c, double noise) {
  const Quadratics problem(kNodes, kSize);
  Plan plan = plan_by_hand(c.options, kNodes, c.lossy);
  plan.slem = (2 + std::cos(2 * std::acos(-1.0) / kNodes)) / 3;
  Fleet<float> narrow(plan, problem, zeros(kNodes, kSize), {.noise = noise});
  Fleet<double> wide(plan, problem, zeros(kNodes, kSize), {.noise = noise});
  std::vector<double> worst(8);
  for (double& window : worst) {
    for (int t = 0; t < 5000; ++t) {
      narrow.step(c.mesh, 0.02);
      wide.step(c.mesh, 0.02);
      if (t % 10 == 0) window = std::max(window, distance(narrow.models(), wide.models()));
    }
  }
  return worst;
}

// The floor: 1e-6 for models of modulus about 1, eight units in the last place.
TEST(Float, FloorsDoNotDriftOver40000Steps) {
  for (const FloatCase& c : float_cases()) {
    for (const double noise : {0.0, 0.5}) {
      if (noise != 0 && c.jumps) continue;
      const std::vector<double> worst = distances(c, noise);
      const double early = *std::max_element(worst.begin() + 1, worst.begin() + 4);
      const double late = *std::max_element(worst.begin() + 4, worst.end());
      EXPECT_LT(early, 1e-6) << c.options.name << ' ' << noise;
      EXPECT_LT(late, 1e-6) << c.options.name << ' ' << noise;
      EXPECT_LT(late, 1.5 * early) << c.options.name << ' ' << noise;
    }
  }
}

}  // namespace
}  // namespace starling::gossip
