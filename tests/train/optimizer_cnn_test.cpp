// SPDX-License-Identifier: Apache-2.0
// Twenty steps of each optimizer on a convolutional network against the same network, its gradient
// by the chain rule and the optimizer in plain double loops, written apart from the library. Where
// ReLU or pooling decides between values that are equal to within float's error, float may decide
// otherwise, and from then on follow another path: the reference says how near it came to that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/train/stepper.h"

namespace starling::train {
namespace {

constexpr int kSide = 12, kIn = 1, kChannels = 6, kKernel = 3, kDense = 16, kClasses = 5;
constexpr int kPooled = kSide / 2;
constexpr std::size_t kRows = 8;
constexpr int kSteps = 20;

// conv (padded) - ReLU - 2x2 max-pool - dense - ReLU - dense - cross-entropy.
class PlainCnn {
 public:
  explicit PlainCnn(std::vector<double> parameters) : p_(std::move(parameters)) {}

  std::vector<double>& parameters() { return p_; }
  // The smallest difference, so far, between the values of a decision.
  double margin() const { return margin_; }

  // Adds d(loss of this row)/dp / `rows` to `g`.
  void add_gradient(std::span<const float> x, int label, double rows, std::vector<double>& g) {
    forward(x);
    std::vector<double> out = logits_;
    const double largest = *std::ranges::max_element(out);
    double sum = 0;
    for (double& z : out) sum += z = std::exp(z - largest);
    for (double& z : out) z /= sum * rows;
    out[static_cast<std::size_t>(label)] -= 1 / rows;
    std::vector<double> hidden(kDense), pooled(pooled_.size());
    for (std::size_t c = 0; c < kClasses; ++c) {
      g[kBias3 + c] += out[c];
      for (std::size_t h = 0; h < kDense; ++h) {
        g[kWeight3 + c * kDense + h] += out[c] * hidden_[h];
        hidden[h] += out[c] * p_[kWeight3 + c * kDense + h];
      }
    }
    for (std::size_t h = 0; h < kDense; ++h) {
      if (hidden_[h] <= 0) continue;
      g[kBias2 + h] += hidden[h];
      for (std::size_t i = 0; i < pooled_.size(); ++i) {
        g[kWeight2 + h * pooled_.size() + i] += hidden[h] * pooled_[i];
        pooled[i] += hidden[h] * p_[kWeight2 + h * pooled_.size() + i];
      }
    }
    for (std::size_t i = 0; i < pooled.size(); ++i) {
      if (pooled_[i] <= 0) continue;  // ReLU
      const std::size_t o = i / (kPooled * kPooled);
      g[kBias1 + o] += pooled[i];
      for (int k = 0; k < kKernel * kKernel; ++k) {
        g[o * kKernel * kKernel + static_cast<std::size_t>(k)] +=
            pooled[i] * at(x, place_[i] / kSide + k / kKernel - kKernel / 2,
                           place_[i] % kSide + k % kKernel - kKernel / 2);
      }
    }
  }

 private:
  static constexpr std::size_t kBias1 = kChannels * kIn * kKernel * kKernel;
  static constexpr std::size_t kWeight2 = kBias1 + kChannels;
  static constexpr std::size_t kBias2 = kWeight2 + kDense * kChannels * kPooled * kPooled;
  static constexpr std::size_t kWeight3 = kBias2 + kDense;
  static constexpr std::size_t kBias3 = kWeight3 + kClasses * kDense;

  static double at(std::span<const float> x, int row, int column) {
    if (row < 0 || column < 0 || row >= kSide || column >= kSide) return 0;
    return x[static_cast<std::size_t>(row * kSide + column)];
  }
  double convolved(std::span<const float> x, std::size_t o, int row, int column) const {
    double sum = p_[kBias1 + o];
    for (int k = 0; k < kKernel * kKernel; ++k) {
      sum += p_[o * kKernel * kKernel + static_cast<std::size_t>(k)] *
             at(x, row + k / kKernel - kKernel / 2, column + k % kKernel - kKernel / 2);
    }
    return sum;
  }
  void forward(std::span<const float> x) {
    pooled_.assign(kChannels * kPooled * kPooled, 0);
    place_.assign(pooled_.size(), 0);
    for (std::size_t i = 0; i < pooled_.size(); ++i) {
      const int cell = static_cast<int>(i) % (kPooled * kPooled);
      double first = -std::numeric_limits<double>::infinity(), second = first;
      for (int corner = 0; corner < 4; ++corner) {
        const int row = 2 * (cell / kPooled) + corner / 2;
        const int column = 2 * (cell % kPooled) + corner % 2;
        const double value = convolved(x, i / (kPooled * kPooled), row, column);
        if (value > first) {
          second = std::exchange(first, value);
          place_[i] = row * kSide + column;
        } else {
          second = std::max(second, value);
        }
      }
      margin_ = std::min(margin_, std::abs(first));
      if (first > 0) margin_ = std::min(margin_, first - second);
      pooled_[i] = std::max(first, 0.0);
    }
    hidden_.assign(kDense, 0);
    for (std::size_t h = 0; h < kDense; ++h) {
      double sum = p_[kBias2 + h];
      for (std::size_t i = 0; i < pooled_.size(); ++i) {
        sum += p_[kWeight2 + h * pooled_.size() + i] * pooled_[i];
      }
      margin_ = std::min(margin_, std::abs(sum));
      hidden_[h] = std::max(sum, 0.0);
    }
    logits_.assign(kClasses, 0);
    for (std::size_t c = 0; c < kClasses; ++c) {
      logits_[c] = p_[kBias3 + c];
      for (std::size_t h = 0; h < kDense; ++h) {
        logits_[c] += p_[kWeight3 + c * kDense + h] * hidden_[h];
      }
    }
  }

  std::vector<double> p_, pooled_, hidden_, logits_;
  std::vector<int> place_;  // of each pooled value, in the image
  double margin_ = std::numeric_limits<double>::infinity();
};

// torch.optim's rules without weight decay.
struct PlainOptimizer {
  std::vector<double> first, second;
  int steps = 0;

  void step(const TrainOptions& o, std::vector<double>& p, const std::vector<double>& g) {
    first.resize(p.size());
    second.resize(p.size());
    ++steps;
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (o.optimizer == "sgd") {
        p[i] -= o.learning_rate * g[i];
      } else if (o.optimizer == "momentum" || o.optimizer == "nesterov") {
        first[i] = o.momentum * first[i] + g[i];
        const bool ahead = o.optimizer == "nesterov";
        p[i] -= o.learning_rate * (ahead ? g[i] + o.momentum * first[i] : first[i]);
      } else {
        first[i] += (1 - o.beta1) * (g[i] - first[i]);
        second[i] += (1 - o.beta2) * (g[i] * g[i] - second[i]);
        const double v = second[i] / (1 - std::pow(o.beta2, steps));
        p[i] -= o.learning_rate / (1 - std::pow(o.beta1, steps)) * first[i] /
                (std::sqrt(v) + o.epsilon);
      }
    }
  }
};

std::shared_ptr<const data::Dataset> images(std::uint64_t seed) {
  Rng rng({.seed = seed, .purpose = Purpose::kTest});
  data::Dataset::Content content{
      .name = "images", .shape = {kIn, kSide, kSide}, .classes = kClasses};
  for (std::size_t row = 0; row < kRows * kSteps; ++row) {
    for (int i = 0; i < kSide * kSide; ++i) {
      content.features.push_back(static_cast<float>(rng.uniform(-1, 1)));
    }
    content.labels.push_back(static_cast<std::int32_t>(row % kClasses));
  }
  return data::Dataset::make(std::move(content)).value();
}

struct Outcome {
  double difference = 0;  // the largest of any parameter
  double margin = 0;
};

Outcome compare(const TrainOptions& options, std::uint64_t seed) {
  const auto dataset = images(seed);
  const model::ModelSpec spec = {
      .kind = "cnn", .channels = {kChannels}, .kernel_size = kKernel, .dense = {kDense}};
  const auto model =
      model::make_model(spec, dataset->shape(), dataset->classes(), linalg::default_kernels())
          .value();
  auto parameters = model::initial_parameters(*model, seed);
  PlainCnn plain({parameters.values().begin(), parameters.values().end()});
  PlainOptimizer optimizer;
  Stepper stepper(model, options);
  stepper.begin(kRows);
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    std::vector<std::uint32_t> rows;
    std::vector<double> gradient(parameters.size());
    for (std::uint32_t r = 0; r < kRows; ++r) {
      rows.push_back(step * static_cast<std::uint32_t>(kRows) + r);
      plain.add_gradient(dataset->row(rows.back()), dataset->labels()[rows.back()], kRows,
                         gradient);
    }
    optimizer.step(options, plain.parameters(), gradient);
    EXPECT_TRUE(std::isfinite(
        stepper.step(parameters.values(), *dataset, rows, options.learning_rate, nullptr)));
  }
  Outcome outcome{.margin = plain.margin()};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double mine = parameters.values()[i];
    outcome.difference = std::max(outcome.difference, std::abs(mine - plain.parameters()[i]));
  }
  return outcome;
}

class EachOptimizerOnACnn : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(All, EachOptimizerOnACnn, ::testing::ValuesIn(kOptimizers),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(EachOptimizerOnACnn, FollowsPlainDoubleWhereNoDecisionIsClose) {
  TrainOptions options{.optimizer = std::string(GetParam()), .learning_rate = 0.02};
  if (options.optimizer.starts_with("adam")) options.learning_rate = 0.001;
  int clear = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Outcome outcome = compare(options, seed);
    if (outcome.margin < 1e-6) continue;
    ++clear;
    EXPECT_LT(outcome.difference, 2e-6) << "seed " << seed << ", margin " << outcome.margin;
  }
  EXPECT_GT(clear, 0);
}

}  // namespace
}  // namespace starling::train
