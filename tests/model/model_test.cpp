// SPDX-License-Identifier: Apache-2.0
#include "core/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/model/reference_model.h"

namespace starling::model {
namespace {

constexpr std::size_t kRows = 5;
// Float sums of a few hundred terms of order 1.
constexpr double kTolerance = 3e-5;

struct Case {
  const char* name;
  ModelSpec spec;
  data::Shape input;
  int classes;
};

ModelSpec mlp(std::vector<int> hidden) { return {.kind = "mlp", .hidden = std::move(hidden)}; }
ModelSpec cnn(std::vector<int> channels, int kernel, std::vector<int> dense) {
  return {.kind = "cnn",
          .channels = std::move(channels),
          .kernel_size = kernel,
          .dense = std::move(dense)};
}

// Small, but with sizes on both sides of every vector and tile; odd images lose a border.
const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"softmax", {.kind = "softmax-regression"}, {1, 1, 21}, 4},
      {"mlp", mlp({9, 17}), {1, 3, 5}, 3},
      {"wide_mlp", mlp({40}), {1, 1, 33}, 18},
      {"cnn", cnn({3, 5}, 3, {6}), {1, 8, 8}, 3},
      {"cnn_of_colours_and_odd_size", cnn({4, 3}, 5, {}), {2, 9, 7}, 3},
      {"cnn_of_17_channels", cnn({17, 2}, 3, {4}), {1, 6, 4}, 2},
      {"cnn_of_one_layer_1x1", cnn({2}, 1, {3, 3}), {3, 4, 4}, 2},
  };
  return kCases;
}

class ModelCase : public ::testing::TestWithParam<std::tuple<Case, const linalg::Kernels*>> {
 protected:
  void SetUp() override {
    const auto& [c, kernels] = GetParam();
    auto made = make_model(c.spec, c.input, c.classes, *kernels);
    ASSERT_TRUE(made) << made.error().message();
    model_ = *made;
    parameters_ = std::make_unique<Parameters>(initial_parameters(*model_, 7));
    Rng rng({.seed = 3});
    features_.resize(kRows * c.input.features());
    for (float& v : features_) v = static_cast<float>(rng.uniform(-1, 1));
    for (std::int32_t& label : labels_) {
      label = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(c.classes)));
    }
    workspace_ = model_->make_workspace(kRows);
  }

  Batch batch(std::size_t begin = 0, std::size_t rows = kRows) const {
    return {features_.data() + begin * model_->input().features(), labels_ + begin, rows};
  }
  std::vector<double> exact_parameters() const {
    return {parameters_->values().begin(), parameters_->values().end()};
  }
  std::vector<float> gradient() {
    std::vector<float> g(parameters_->size(), std::numeric_limits<float>::quiet_NaN());
    model_->gradient(parameters_->values(), batch(), kRows, {g, 0, 1}, *workspace_);
    return g;
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Parameters> parameters_;
  std::vector<float> features_;
  std::int32_t labels_[kRows] = {};
  std::unique_ptr<Workspace> workspace_;
};

std::string case_name(
    const ::testing::TestParamInfo<std::tuple<Case, const linalg::Kernels*>>& param) {
  const auto& [c, kernels] = param.param;
  return std::string(c.name) + "_" + kernels->name;
}

INSTANTIATE_TEST_SUITE_P(All, ModelCase,
                         ::testing::Combine(::testing::ValuesIn(cases()),
                                            ::testing::ValuesIn(linalg::available_kernels())),
                         case_name);

TEST_P(ModelCase, LossAgreesWithPlainLoops) {
  const ReferenceModel reference(*model_->layout(), model_->input());
  double sum = 0;
  std::uint64_t correct = 0;
  for (std::size_t r = 0; r < kRows; ++r) {
    const float* x = batch(r).features;
    sum += reference.loss(exact_parameters(), x, labels_[r]);
    const auto z = reference.logits(exact_parameters(), x);
    correct += std::ranges::max_element(z) - z.begin() == labels_[r] ? 1 : 0;
  }
  const Score score = model_->score(parameters_->values(), batch(), *workspace_);
  EXPECT_NEAR(score.loss_sum, sum, kTolerance);
  EXPECT_EQ(score.correct, correct);
}

TEST_P(ModelCase, GradientAgreesWithCentralDifferences) {
  const ReferenceModel reference(*model_->layout(), model_->input());
  const auto expected = reference.gradient(exact_parameters(), batch().features, labels_, kRows);
  const auto g = gradient();
  for (const TensorInfo& tensor : model_->layout()->tensors()) {
    double largest = 0;
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      const std::size_t at = tensor.offset + i;
      EXPECT_NEAR(g[at], expected[at], kTolerance) << tensor.name << "[" << i << "]";
      largest = std::max(largest, std::abs(expected[at]));
    }
    EXPECT_GT(largest, 1e-3) << tensor.name << " learns nothing: the test is blind";
  }
}

TEST_P(ModelCase, GradientAndScoreReportTheSameBits) {
  std::vector<float> g(parameters_->size());
  const Score score = model_->score(parameters_->values(), batch(), *workspace_);
  const Score again =
      model_->gradient(parameters_->values(), batch(), kRows, {g, 0, 1}, *workspace_);
  EXPECT_EQ(score.loss_sum, again.loss_sum);
  EXPECT_EQ(score.correct, again.correct);
}

TEST_P(ModelCase, InPlaceStepIsTheGradientStep) {
  const auto g = gradient();
  Parameters stepped = *parameters_;
  model_->gradient(stepped.values(), batch(), kRows, {stepped.values(), 0.5F, -0.25F}, *workspace_);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const float p = parameters_->values()[i];
    ASSERT_NEAR(stepped.values()[i], 0.5F * p - 0.25F * g[i], 1e-6);
  }
}

TEST_P(ModelCase, PartsOfABatchAddUp) {
  const auto whole = gradient();
  std::vector<float> sum(whole.size());
  model_->gradient(parameters_->values(), batch(0, 2), kRows, {sum, 0, 1}, *workspace_);
  model_->gradient(parameters_->values(), batch(2, kRows - 2), kRows, {sum, 1, 1}, *workspace_);
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], whole[i], 1e-6);
}

TEST_P(ModelCase, RowsScoreTheSameBitsInAnyCompany) {
  double sum = 0;
  for (std::size_t r = 0; r < kRows; ++r) {
    sum += model_->score(parameters_->values(), batch(r, 1), *workspace_).loss_sum;
  }
  EXPECT_EQ(model_->score(parameters_->values(), batch(), *workspace_).loss_sum, sum);
}

TEST_P(ModelCase, AUsedWorkspaceGivesTheSameBits) {
  const auto first = gradient();
  const auto second = gradient();
  workspace_ = model_->make_workspace(kRows + 3);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, gradient());
}

TEST_P(ModelCase, InstructionSetsAgree) {
  const auto& c = std::get<0>(GetParam());
  const linalg::Kernels& baseline = *linalg::available_kernels().back();
  const auto model = make_model(c.spec, c.input, c.classes, baseline).value();
  std::vector<float> expected(parameters_->size());
  model->gradient(parameters_->values(), batch(), kRows, {expected, 0, 1},
                  *model->make_workspace(kRows));
  const auto g = gradient();
  for (std::size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(g[i], expected[i], 1e-6);
}

}  // namespace
}  // namespace starling::model
