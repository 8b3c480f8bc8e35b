// SPDX-License-Identifier: Apache-2.0
// An application's trainer, whatever it does: named, and an error of the task.
#include "core/client/checked_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <new>
#include <stdexcept>

#include "core/client/training_settings.h"
#include "core/model/external_model.h"

namespace starling::client {
namespace {

using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Scripted final : public Trainer {
 public:
  Result<TrainingReport> train(const TrainingRequest&, std::span<float> parameters,
                               const train::TrainingHooks<float>&,
                               const std::atomic<bool>&) override {
    if (on_train) on_train(parameters);
    return report;
  }
  Result<double> full_gradient(const TrainingRequest&, std::span<const float> parameters,
                               std::span<float> gradient, const std::atomic<bool>&) override {
    std::ranges::copy(parameters, gradient.begin());
    return loss_found;
  }
  Result<double> loss(const TrainingRequest&, std::span<const float>,
                      const std::atomic<bool>&) override {
    return loss_found;
  }
  Result<train::Evaluation> evaluate(const TrainingRequest&, std::span<const float>,
                                     const std::atomic<bool>&) override {
    return train::Evaluation{
        .loss = loss_found, .accuracy = accuracy, .samples = samples, .metrics = metrics};
  }

  std::function<void(std::span<float>)> on_train;
  Result<TrainingReport> report = TrainingReport{.weight = 40, .train_loss = 0.25};
  double loss_found = 0.75;
  std::optional<double> accuracy = 0.5;
  train::Metrics metrics = {{"mae", -0.25}};
  std::uint64_t samples = 9;
};

class CheckedTrainerTest : public ::testing::Test {
 protected:
  CheckedTrainerTest() { settings.model.kind = model::kExternalKind; }

  // The checked trainer with a request of `settings`; `call` names one of its functions.
  template <class Call>
  auto with_request(const Call& call) {
    CheckedTrainer checked(
        trainer, {.name = "the trainer 'app'", .operations = operations, .layout = layout});
    const Settings text = settings.to_settings();
    return call(checked, TrainingRequest{.settings = text});
  }
  Result<TrainingReport> train(const train::TrainingHooks<float>& hooks = {}) {
    return with_request([&](Trainer& checked, const TrainingRequest& request) {
      return checked.train(request, parameters, hooks, stop);
    });
  }
  Result<double> full_gradient() {
    return with_request([&](Trainer& checked, const TrainingRequest& request) {
      return checked.full_gradient(request, parameters, gradient, stop);
    });
  }
  Result<double> loss() {
    return with_request([&](Trainer& checked, const TrainingRequest& request) {
      return checked.loss(request, parameters, stop);
    });
  }
  Result<train::Evaluation> evaluate() {
    return with_request([&](Trainer& checked, const TrainingRequest& request) {
      return checked.evaluate(request, parameters, stop);
    });
  }

  using enum TrainerOperation;
  Scripted trainer;
  std::vector<TrainerOperation> operations = {kFit, kGradient, kEvaluate};
  const std::shared_ptr<const model::Layout> layout =
      *model::external_layout({{.name = "w", .shape = {3}}});
  TrainingSettings settings;
  std::vector<float> parameters = {1, 2, 3};
  std::vector<float> gradient = std::vector<float>(3);
  const std::atomic<bool> stop = false;
};

TEST_F(CheckedTrainerTest, WhatIsRightPassesThrough) {
  trainer.on_train = [](std::span<float> values) { values[0] = 7; };
  EXPECT_EQ(train()->weight, 40);
  EXPECT_EQ(parameters[0], 7);
  EXPECT_EQ(full_gradient().value(), 0.75);
  EXPECT_EQ(gradient, parameters);
  EXPECT_EQ(loss().value(), 0.75);
  EXPECT_EQ(evaluate()->samples, 9U);
  EXPECT_EQ(evaluate()->metrics, trainer.metrics);
  trainer.report->metrics = {{"accuracy", 0.5}, {"mae", 2}};
  EXPECT_EQ(train()->metrics, trainer.report->metrics);
  trainer.accuracy.reset();
  EXPECT_EQ(evaluate()->accuracy, std::nullopt);
  trainer.report = retry("stopped", "told to");
  EXPECT_EQ(train().error(), retry("stopped", "told to"));
}

TEST_F(CheckedTrainerTest, AnotherModelIsRefusedBeforeTheTrainerSeesIt) {
  trainer.on_train = [](std::span<float>) { ADD_FAILURE(); };
  parameters.push_back(4);
  EXPECT_EQ(train().error(), unsupported("tensors-differ",
                                         "the run's model has 4 values, and the trainer 'app' has "
                                         "1 tensor of 3 values; train the same model on all "
                                         "clients"));
  EXPECT_EQ(full_gradient().error().code(), "tensors-differ");
  EXPECT_EQ(loss().error().code(), "tensors-differ");
  EXPECT_EQ(evaluate().error().code(), "tensors-differ");
  parameters.pop_back();
  settings.model.layout =
      model::digest_of(**model::external_layout({{.name = "other", .shape = {3}}})).hex();
  EXPECT_THAT(train().error().message(), HasSubstr("other names"));
  settings.model = {};
  EXPECT_THAT(train().error().message(), HasSubstr("built-in model (mlp)"));
}

TEST_F(CheckedTrainerTest, WhatItDoesNotOfferIsRefused) {
  operations = {kFit};
  EXPECT_TRUE(train());
  EXPECT_EQ(train({.correct = [](auto, auto) {}}).error(),
            unsupported("unsupported-operation",
                        "the trainer 'app' does not offer 'gradient', "
                        "which this run needs of it; it offers fit"));
  train::OptimizerState<float> state;
  EXPECT_EQ(train({.optimizer = &state}).error().code(), "unsupported-operation");
  EXPECT_EQ(full_gradient().error().code(), "unsupported-operation");
  EXPECT_EQ(loss().error().code(), "unsupported-operation");
  EXPECT_EQ(evaluate().error().code(), "unsupported-operation");
}

TEST_F(CheckedTrainerTest, WhatItThrowsIsAnErrorOfTheTask) {
  trainer.on_train = [](std::span<float>) { throw std::runtime_error("no GPU"); };
  EXPECT_EQ(train().error(),
            rejected("trainer-failed", "the trainer 'app' threw an exception: no GPU"));
  trainer.on_train = [](std::span<float>) { throw 42; };
  EXPECT_EQ(train().error().code(), "trainer-failed");
  trainer.on_train = [](std::span<float>) { throw std::bad_alloc(); };
  EXPECT_THROW((void)train(), std::bad_alloc);  // for train_with() to name
}

TEST_F(CheckedTrainerTest, ResultsThatNobodyCanUseAreErrors) {
  trainer.on_train = [](std::span<float> values) { values[1] = static_cast<float>(kNaN); };
  EXPECT_EQ(train().error().code(), "diverged");
  EXPECT_EQ(full_gradient().error().code(), "diverged");  // a copy of the parameters
  parameters[1] = 2;
  trainer.on_train = nullptr;
  trainer.report = TrainingReport{.weight = 40, .train_loss = kNaN};
  EXPECT_EQ(train().error().code(), "diverged");
  trainer.report = TrainingReport{.weight = 40, .metrics = {{"mae", kNaN}}};
  EXPECT_EQ(train().error().code(), "diverged");
  trainer.report->metrics = {{"loss", 1}};
  EXPECT_THAT(train().error().message(), HasSubstr("a metric that is called 'loss'"));
  for (int i = 0; i < 33; ++i) trainer.report->metrics["m" + std::to_string(i)] = 1;
  EXPECT_THAT(train().error().message(), HasSubstr("at most 32"));
  trainer.report = TrainingReport{.weight = 0};
  EXPECT_EQ(train().error().code(), "trainer-failed");
  trainer.loss_found = kNaN;
  EXPECT_EQ(full_gradient().error().code(), "diverged");
  EXPECT_EQ(loss().error().code(), "diverged");
  EXPECT_EQ(evaluate().error().code(), "diverged");
  trainer.loss_found = 1;
  trainer.accuracy = 1.5;
  EXPECT_EQ(evaluate().error().code(), "trainer-failed");
  trainer.accuracy = 1;
  trainer.metrics = {{"mae", kNaN}};
  EXPECT_EQ(evaluate().error().code(), "diverged");
  trainer.metrics = {{"loss", 1}};
  EXPECT_THAT(evaluate().error().message(), HasSubstr("a metric that is called 'loss'"));
  for (int i = 0; i < 33; ++i) trainer.metrics["m" + std::to_string(i)] = 1;
  EXPECT_THAT(evaluate().error().message(), HasSubstr("at most 32"));
  trainer.samples = 0;
  EXPECT_EQ(evaluate().error().code(), "no-data");
}

}  // namespace
}  // namespace starling::client
