// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include "core/model/model.h"

namespace starling::model {
namespace {

constexpr data::Shape kMnist = {1, 28, 28};

std::shared_ptr<const Layout> layout_of(const ModelSpec& spec) {
  auto model = make_model(spec, kMnist, 10);
  EXPECT_TRUE(model) << model.error().message();
  return (*model)->layout();
}

std::string refusal(const ModelSpec& spec, data::Shape input = kMnist, int classes = 10) {
  const auto model = make_model(spec, input, classes);
  if (model) return "none";
  EXPECT_EQ(model.error().code(), "bad-model-spec");
  EXPECT_EQ(model.error().kind(), ErrorKind::kRejected);
  return model.error().message();
}

TEST(MakeModel, HasTheSizesOfThePapers) {
  EXPECT_EQ(layout_of({.kind = "softmax-regression"})->size(), 7'850U);
  EXPECT_EQ(layout_of({.kind = "mlp"})->size(), 199'210U);
  EXPECT_EQ(layout_of({.kind = "cnn"})->size(), 1'663'370U);
}

TEST(MakeModel, NamesTensorsAsTorchDoes) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors;
  const auto layout = layout_of({.kind = "cnn"});
  for (const TensorInfo& t : layout->tensors()) {
    tensors.emplace_back(t.name, t.shape);
  }
  const decltype(tensors) expected = {{"conv1.weight", {32, 1, 5, 5}},  {"conv1.bias", {32}},
                                      {"conv2.weight", {64, 32, 5, 5}}, {"conv2.bias", {64}},
                                      {"fc1.weight", {512, 3136}},      {"fc1.bias", {512}},
                                      {"fc2.weight", {10, 512}},        {"fc2.bias", {10}}};
  EXPECT_EQ(tensors, expected);
}

TEST(MakeModel, RefusesWhatDoesNotFit) {
  EXPECT_NE(refusal({.kind = "rnn"}).find("\"rnn\""), std::string::npos);
  EXPECT_NE(refusal({.kind = "mlp", .hidden = {200, 0}}).find("0"), std::string::npos);
  EXPECT_NE(refusal({.kind = "mlp", .hidden = {-5}}).find("-5"), std::string::npos);
  EXPECT_NE(refusal({.kind = "cnn", .kernel_size = 4}).find("odd"), std::string::npos);
  EXPECT_NE(refusal({.kind = "cnn", .channels = {}}).find("channels"), std::string::npos);
  EXPECT_NE(refusal({.kind = "cnn", .channels = {1, 1, 1, 1, 1}}).find("halved 4 times"),
            std::string::npos);
  EXPECT_NE(refusal({.kind = "cnn"}, {1, 1, 784}).find("needs images"), std::string::npos);
  EXPECT_NE(refusal({.kind = "mlp"}, {1, 0, 5}).find("1x0x5"), std::string::npos);
  EXPECT_NE(refusal({.kind = "mlp"}, kMnist, 1).find("at least 2"), std::string::npos);
}

TEST(MakeModel, RefusesAbsurdSizesWithoutAllocating) {
  const std::vector<int> wide(64, INT_MAX);
  EXPECT_NE(refusal({.kind = "mlp", .hidden = wide}), "none");
  EXPECT_NE(refusal({.kind = "mlp", .hidden = {1 << 20}}), "none");
  EXPECT_NE(refusal({.kind = "mlp", .hidden = std::vector<int>(65, 1)}), "none");
  EXPECT_NE(refusal({.kind = "cnn", .channels = {INT_MAX, INT_MAX}}), "none");
  EXPECT_NE(refusal({.kind = "cnn", .channels = {4096, 4096, 4096}, .kernel_size = 31}), "none");
  EXPECT_NE(refusal({.kind = "mlp"}, {INT_MAX, INT_MAX, INT_MAX}), "none");
  EXPECT_NE(refusal({.kind = "cnn"}, {1, 1 << 13, 1 << 13}), "none");
  EXPECT_NE(refusal({.kind = "softmax-regression"}, kMnist, INT_MAX), "none");
}

TEST(InitialParameters, AreUniformWithinOneOverRootFanIn) {
  const auto model = make_model({.kind = "cnn"}, kMnist, 10).value();
  const Parameters parameters = initial_parameters(*model, 1);
  const double fan_in[] = {25, 25, 800, 800, 3136, 3136, 512, 512};
  std::size_t i = 0;
  for (const TensorInfo& tensor : model->layout()->tensors()) {
    const double bound = 1 / std::sqrt(fan_in[i++]);
    double sum = 0, squares = 0, largest = 0;
    for (const float v : parameters.values(tensor)) {
      sum += v;
      squares += static_cast<double>(v) * v;
      largest = std::max(largest, std::abs(static_cast<double>(v)));
    }
    const auto n = static_cast<double>(tensor.size());
    EXPECT_LE(largest, bound * (1 + 1e-6)) << tensor.name;
    EXPECT_GT(largest, bound * 0.7) << tensor.name;
    EXPECT_LT(std::abs(sum / n), 5 * bound / std::sqrt(3 * n)) << tensor.name;
    if (n > 1000) {
      EXPECT_NEAR(squares / n, bound * bound / 3, bound * bound * 0.03) << tensor.name;
    }
  }
}

TEST(InitialParameters, FollowFromTheSeed) {
  const auto model = make_model({.kind = "mlp", .hidden = {5}}, {1, 1, 3}, 2).value();
  EXPECT_EQ(initial_parameters(*model, 1), initial_parameters(*model, 1));
  EXPECT_FALSE(initial_parameters(*model, 1) == initial_parameters(*model, 2));
}

}  // namespace
}  // namespace starling::model
