// SPDX-License-Identifier: Apache-2.0
// The bits of trained models, per instruction set: they are part of every recorded run, so they may
// change only on purpose, and not with the compiler.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>

#include "core/train/local_trainer.h"

namespace starling::train {
namespace {

data::DatasetView images() {
  Rng rng({.seed = 11});
  data::Dataset::Content content{.name = "images", .shape = {2, 9, 7}, .classes = 5};
  for (int row = 0; row < 40; ++row) {
    for (std::size_t i = 0; i < content.shape.features(); ++i) {
      content.features.push_back(static_cast<float>(rng.uniform(-1, 1)));
    }
    content.labels.push_back(row % 5);
  }
  return {data::Dataset::make(std::move(content)).value()};
}

std::string trained_digest(const model::ModelSpec& spec, const char* optimizer,
                           const linalg::Kernels& kernels) {
  const auto view = images();
  const auto model =
      model::make_model(spec, view.dataset->shape(), view.dataset->classes(), kernels).value();
  LocalTrainer trainer(model, {.local_epochs = 3,
                               .batch_size = 7,
                               .optimizer = optimizer,
                               .learning_rate = 0.125,
                               .weight_decay = 0.0625});
  auto parameters = model::initial_parameters(*model, 1);
  const std::atomic<bool> stop = false;
  const Rng rng({.seed = 1, .purpose = Purpose::kBatches});
  EXPECT_TRUE(trainer.train(parameters.values(), view, 1, 1, rng, stop));
  return parameters.sha256().hex().substr(0, 16);
}

TEST(GoldenBits, TrainedModelsAreAsRecorded) {
  const model::ModelSpec mlp = {.kind = "mlp", .hidden = {19, 6}};
  const model::ModelSpec cnn = {
      .kind = "cnn", .channels = {5, 18}, .kernel_size = 3, .dense = {11}};
  const std::map<std::string, std::array<std::string, 3>> recorded = {
      {"v2", {"65cf4270fccd26f1", "1c32797649df0e66", "73de9b158c33493c"}},
      {"v3", {"f0d3e0df5d919e42", "70c30382497bfae4", "a542b5a297fa3b33"}},
      {"v4", {"6a7a909bb6ffd3de", "52003ee1538cf358", "308d10aeb3081525"}}};
  for (const linalg::Kernels* kernels : linalg::available_kernels()) {
    const std::array<std::string, 3> digests = {trained_digest(mlp, "sgd", *kernels),
                                                trained_digest(cnn, "sgd", *kernels),
                                                trained_digest(cnn, "nesterov", *kernels)};
    const auto found = recorded.find(kernels->name);
    if (found == recorded.end()) continue;  // no digests of other architectures are recorded
    EXPECT_EQ(digests, found->second) << kernels->name;
  }
}

}  // namespace
}  // namespace starling::train
