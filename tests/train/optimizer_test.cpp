// SPDX-License-Identifier: Apache-2.0
// Whole sequences of steps against torch.optim's update formulas, written down here in double.
#include "core/train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/rng.h"

namespace starling::train {
namespace {

constexpr std::size_t kSize = 37;
constexpr int kStepsCompared = 12;

// One parameter under torch.optim's rules.
struct Scalar {
  double p = 0, velocity = 0, m = 0, v = 0;

  void step(const TrainOptions& o, double gradient, double rate, int t) {
    double g = gradient;
    if (o.optimizer == "adamw") {
      p -= rate * o.weight_decay * p;
    } else {
      g += o.weight_decay * p;
    }
    if (o.optimizer == "sgd") {
      p -= rate * g;
    } else if (o.optimizer == "momentum" || o.optimizer == "nesterov") {
      velocity = o.momentum * velocity + g;
      p -= rate * (o.optimizer == "nesterov" ? g + o.momentum * velocity : velocity);
    } else {
      m = o.beta1 * m + (1 - o.beta1) * g;
      v = o.beta2 * v + (1 - o.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(o.beta1, t));
      const double v_hat = v / (1 - std::pow(o.beta2, t));
      p -= rate * m_hat / (std::sqrt(v_hat) + o.epsilon);
    }
  }
};

class EachOptimizer : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(All, EachOptimizer, ::testing::ValuesIn(kOptimizers),
                         [](const auto& param) { return std::string(param.param); });

void compare(const TrainOptions& options, Optimizer& optimizer) {
  Rng rng({.seed = 4});
  std::vector<float> parameters(kSize), gradient(kSize);
  std::vector<Scalar> expected(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    parameters[i] = static_cast<float>(rng.uniform(-1, 1));
    expected[i].p = parameters[i];
  }
  for (int t = 1; t <= kStepsCompared; ++t) {
    const double rate = 0.05 / t;
    for (float& g : gradient) g = static_cast<float>(rng.uniform(-1, 1));
    optimizer.step(parameters, gradient, rate);
    for (std::size_t i = 0; i < kSize; ++i) {
      expected[i].step(options, gradient[i], rate, t);
      ASSERT_NEAR(parameters[i], expected[i].p, 2e-6) << "step " << t;
    }
  }
}

TEST_P(EachOptimizer, FollowsTorch) {
  for (const double decay : {0.0, 0.1}) {
    const TrainOptions options{.optimizer = std::string(GetParam()), .weight_decay = decay};
    Optimizer optimizer(options, kSize, linalg::default_kernels());
    compare(options, optimizer);
    optimizer.reset();
    compare(options, optimizer);  // as if new
  }
}

// Where beta is close to 1, a float 1 - beta is off by percents, and so would be every step until
// the moments have settled.
TEST(Adam, FollowsTorchWhereBetaIsCloseToOne) {
  for (const char* kind : {"adam", "adamw"}) {
    for (const double beta : {0.999, 0.9999, 0.999999}) {
      const TrainOptions options{
          .optimizer = kind, .weight_decay = 0.01, .beta1 = beta, .beta2 = beta};
      Optimizer optimizer(options, kSize, linalg::default_kernels());
      Rng rng({.seed = 5});
      std::vector<float> p(kSize), g(kSize);
      std::vector<Scalar> expected(kSize);
      for (int t = 1; t <= 200; ++t) {
        for (float& v : g) v = static_cast<float>(rng.uniform(-1, 1));
        optimizer.step(p, g, 0.1);
        for (std::size_t i = 0; i < kSize; ++i) expected[i].step(options, g[i], 0.1, t);
      }
      double moved = 0, difference = 0;
      for (std::size_t i = 0; i < kSize; ++i) {
        moved = std::max(moved, std::abs(expected[i].p));
        difference = std::max(difference, std::abs(p[i] - expected[i].p));
      }
      EXPECT_LE(difference, 4e-6 * moved) << kind << ", beta " << beta;
    }
  }
}

// With a beta of 0 only the last gradient counts, however large the one before.
TEST(Adam, FollowsTorchWhereBetaIsCloseToZero) {
  for (const double beta : {0.0, 0.001, 0.1, 0.4}) {
    const TrainOptions options{.optimizer = "adam", .beta1 = beta, .beta2 = beta};
    Optimizer optimizer(options, 1, linalg::default_kernels());
    std::vector<float> p(1), g(1);
    Scalar expected;
    for (int t = 1; t <= 40; ++t) {
      g[0] = t % 2 == 0 ? 1e-4F : 3e3F;
      optimizer.step(p, g, 0.1);
      expected.step(options, g[0], 0.1, t);
      ASSERT_NEAR(p[0], expected.p, 2e-6 * t) << "beta " << beta << ", step " << t;
    }
  }
}

TEST(Adam, FirstStepHasTheLengthOfTheRate) {
  // With bias correction m_hat = g and v_hat = g^2: p moves by rate * sign(g), whatever |g|.
  const TrainOptions options{.optimizer = "adam"};
  Optimizer optimizer(options, 3, linalg::default_kernels());
  std::vector<float> p = {0, 0, 0};
  const std::vector<float> g = {1e-3F, -5, 1e4F};
  optimizer.step(p, g, 0.01);
  EXPECT_NEAR(p[0], -0.01, 1e-6);
  EXPECT_NEAR(p[1], 0.01, 1e-6);
  EXPECT_NEAR(p[2], -0.01, 1e-6);
}

}  // namespace
}  // namespace starling::train
