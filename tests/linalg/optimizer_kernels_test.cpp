// SPDX-License-Identifier: Apache-2.0
// The elementwise kernels against double computations of torch.optim's documented updates.
#include <gtest/gtest.h>

#include <limits>

#include "tests/linalg/kernel_cases.h"

namespace starling::linalg {
namespace {

constexpr std::size_t kSizes[] = {1, 5, 16, 100};

class OptimizerKernels : public EachKernels {};
INSTANTIATE_TEST_SUITE_P(All, OptimizerKernels, ::testing::ValuesIn(available_kernels()),
                         kernels_name);

TEST_P(OptimizerKernels, AccumulateAndScale) {
  Rng rng({.seed = 1});
  for (const std::size_t size : kSizes) {
    const auto x = random_floats(size, rng);
    const auto before = random_floats(size, rng);
    auto y = before;
    kernels().accumulate(y.data(), 0.5F, x.data(), -2, size);
    for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(y[i], before[i] / 2 - 2 * x[i], 1e-6);
    kernels().scale(y.data(), size, 4);
    for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(y[i], 2 * before[i] - 8 * x[i], 1e-5);
  }
}

TEST_P(OptimizerKernels, BytesExpandToTheirCorrectlyRoundedQuotients) {
  std::vector<std::uint8_t> bytes(256 + 7);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  std::vector<float> out(bytes.size());
  kernels().expand_bytes(bytes.data(), out.data(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(out[i], static_cast<float>(bytes[i]) / 255.0F) << i;
  }
}

TEST_P(OptimizerKernels, MomentumIsTorchs) {
  Rng rng({.seed = 2});
  const double rate = 0.1, mu = 0.9, decay = 0.01;
  for (const bool nesterov : {false, true}) {
    for (const std::size_t size : kSizes) {
      auto p = random_floats(size, rng);
      std::vector<float> velocity(size);
      std::vector<double> q(p.begin(), p.end()), buffer(size);
      for (int step = 0; step < 5; ++step) {
        const auto gradient = random_floats(size, rng);
        kernels().momentum(p.data(), gradient.data(), velocity.data(), size, 0.1F, 0.9F, 0.01F,
                           nesterov);
        for (std::size_t i = 0; i < size; ++i) {
          const double g = static_cast<double>(gradient[i]) + decay * q[i];
          buffer[i] = mu * buffer[i] + g;
          q[i] -= rate * (nesterov ? g + mu * buffer[i] : buffer[i]);
          ASSERT_NEAR(p[i], q[i], 1e-6);
        }
      }
    }
  }
}

TEST_P(OptimizerKernels, AdamTakesTheStepItIsGiven) {
  Rng rng({.seed = 3});
  for (const std::size_t size : kSizes) {
    auto p = random_floats(size, rng);
    const auto before = p;
    const auto gradient = random_floats(size, rng);
    std::vector<float> first(size, 0.1F), second(size, 0.2F);
    kernels().adam({.parameters = p.data(),
                    .gradient = gradient.data(),
                    .first = first.data(),
                    .second = second.data(),
                    .size = size,
                    .first_gain = 0.5F,
                    .second_gain = 0.25F,
                    .epsilon = 0.125F,
                    .step = 0.25F,
                    .second_correction = 2,
                    .decay = 0.5F,
                    .decoupled = 0.875F});
    for (std::size_t i = 0; i < size; ++i) {
      const double start = static_cast<double>(before[i]);
      const double g = static_cast<double>(gradient[i]) + 0.5 * start;
      const double m = 0.05 + 0.5 * g;
      const double v = 0.15 + 0.25 * g * g;
      EXPECT_NEAR(first[i], m, 1e-6);
      EXPECT_NEAR(second[i], v, 1e-6);
      EXPECT_NEAR(p[i], 0.875 * start - 0.25 * m / (2 * std::sqrt(v) + 0.125), 1e-6);
    }
  }
}

TEST_P(OptimizerKernels, SquaredNormHasTheSameBitsInEverySet) {
  Rng rng({.seed = 4});
  for (const std::size_t size : {0, 1, 7, 8, 9, 1000, 1003}) {
    const auto x = random_floats(size, rng);
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
    const double norm = kernels().squared_norm(x.data(), size);
    EXPECT_NEAR(norm, sum, 1e-12 * (1 + sum));
    EXPECT_EQ(norm, available_kernels().back()->squared_norm(x.data(), size));
  }
}

TEST_P(OptimizerKernels, AllFiniteFindsOneBadValueAnywhere) {
  std::vector<float> x(100, std::numeric_limits<float>::max());
  x[3] = std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(kernels().all_finite(x.data(), x.size()));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      auto y = x;
      y[i] = bad;
      ASSERT_FALSE(kernels().all_finite(y.data(), y.size()));
    }
  }
}

TEST_P(OptimizerKernels, MixIsTheSumOfWeightedDifferencesToTheBit) {
  Rng rng({.seed = 4});
  for (std::size_t size = 1; size <= 230; size += size < 40 ? 1 : 19) {
    for (const std::size_t count : {0, 1, 2, 13}) {
      const auto base = random_floats(size, rng), x = random_floats(size, rng);
      const auto weights = random_floats(count, rng);
      std::vector<std::vector<float>> others;
      std::vector<const float*> pointers;
      for (std::size_t k = 0; k < count; ++k) others.push_back(random_floats(size, rng));
      for (const auto& other : others) pointers.push_back(other.data());
      std::vector<float> out(size + 1, 77);
      Mix m = {.out = out.data(),
               .base = base.data(),
               .x = x.data(),
               .others = pointers.data(),
               .weights = weights.data(),
               .count = count,
               .size = size};
      kernels().mix(m);
      std::vector<float> flow(size), in_place = base;
      m.out = in_place.data();
      m.base = in_place.data();
      kernels().mix(m);
      m.out = flow.data();
      m.base = nullptr;
      kernels().mix(m);
      std::vector<double> wide(size);
      kernels().mix_wide({.sum = wide.data(),
                          .x = x.data(),
                          .others = pointers.data(),
                          .weights = weights.data(),
                          .count = count,
                          .size = size});
      for (std::size_t i = 0; i < size; ++i) {
        double exact = 0;
        for (std::size_t k = 0; k < count; ++k) {
          exact += static_cast<double>(weights[k]) *
                   (static_cast<double>(others[k][i]) - static_cast<double>(x[i]));
        }
        ASSERT_NEAR(wide[i], exact, 1e-15 * static_cast<double>(4 * count));
        volatile float sum = 0;  // volatile: nothing may be fused here either
        for (std::size_t k = 0; k < count; ++k) {
          volatile const float part = weights[k] * (others[k][i] - x[i]);
          sum = sum + part;
        }
        ASSERT_EQ(flow[i], sum);
        ASSERT_EQ(out[i], base[i] + sum);
        ASSERT_EQ(in_place[i], out[i]);
      }
      EXPECT_EQ(out[size], 77) << "wrote beyond the end";
    }
  }
}

}  // namespace
}  // namespace starling::linalg
