// SPDX-License-Identifier: Apache-2.0
#include "core/train/local_trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/data/batch_sampler.h"
#include "core/train/evaluator.h"
#include "tests/train/training_data.h"

namespace starling::train {
namespace {

const model::ModelSpec kSoftmax = {.kind = "softmax-regression"};
struct Trained {
  model::Parameters parameters;
  TrainResult result;
};

Trained train_from_start(LocalTrainer& trainer, const model::Model& model,
                         const data::DatasetView& view) {
  model::Parameters parameters = model::initial_parameters(model, 5);
  const auto result = trainer.train(parameters.values(), view, 2, 10, batches(), kGo);
  EXPECT_TRUE(result) << result.error().message();
  return {std::move(parameters), result.value()};
}

Trained train_once(const model::ModelSpec& spec, const data::DatasetView& view,
                   const TrainOptions& options) {
  const auto model = model_for(view, spec);
  LocalTrainer trainer(model, options);
  return train_from_start(trainer, *model, view);
}

double largest_difference(const model::Parameters& a, const model::Parameters& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.values()[i]) - b.values()[i]));
  }
  return largest;
}

// Softmax regression by SGD in double, over the batches that the sampler deals.
std::vector<double> reference_sgd(const data::DatasetView& view, std::vector<double> p,
                                  const TrainOptions& o, double& loss) {
  const auto features = view.dataset->shape().features();
  const auto classes = static_cast<std::size_t>(view.dataset->classes());
  const double rate = learning_rate_at(o, 2, 10);
  data::BatchSampler sampler(view, static_cast<std::size_t>(o.batch_size), batches());
  double loss_sum = 0;
  std::size_t seen = 0;
  while (seen < view.size() * static_cast<std::size_t>(o.local_epochs)) {
    const auto rows = sampler.next();
    std::vector<double> g(p.size());
    for (const std::uint32_t row : rows) {
      const auto x = view.dataset->row(row);
      const auto label = static_cast<std::size_t>(view.dataset->labels()[row]);
      std::vector<double> z(classes);
      double sum = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        z[c] = p[classes * features + c];
        for (std::size_t f = 0; f < features; ++f) z[c] += p[c * features + f] * x[f];
        sum += std::exp(z[c]);
      }
      loss_sum += std::log(sum) - z[label];
      for (std::size_t c = 0; c < classes; ++c) {
        const double d =
            (std::exp(z[c]) / sum - (c == label ? 1 : 0)) / static_cast<double>(rows.size());
        for (std::size_t f = 0; f < features; ++f) g[c * features + f] += d * x[f];
        g[classes * features + c] += d;
      }
    }
    for (std::size_t i = 0; i < p.size(); ++i) p[i] -= rate * (g[i] + o.weight_decay * p[i]);
    seen += rows.size();
  }
  loss = loss_sum / static_cast<double>(seen);
  return p;
}

TEST(LocalTrainer, FollowsAPlainLoopInDouble) {
  const auto view = clusters(50, 6, 3);
  const TrainOptions options{.local_epochs = 3,
                             .batch_size = 8,
                             .learning_rate = 0.2,
                             .weight_decay = 0.01,
                             .schedule = "cosine"};
  const auto model = model_for(view, kSoftmax);
  const auto start = model::initial_parameters(*model, 5);
  double loss = 0;
  const auto expected =
      reference_sgd(view, {start.values().begin(), start.values().end()}, options, loss);
  const Trained trained = train_once(kSoftmax, view, options);
  EXPECT_NEAR(trained.result.train_loss, loss, 1e-6);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(trained.parameters.values()[i], expected[i], 3e-6);
  }
}

TEST(LocalTrainer, CountsSamplesAndSteps) {
  const auto view = clusters(50, 6, 3);
  const auto epochs = train_once(kSoftmax, view, {.local_epochs = 2, .batch_size = 8}).result;
  EXPECT_EQ(epochs.steps, 14U);
  EXPECT_EQ(epochs.samples, 100U);
  const auto steps = train_once(kSoftmax, view, {.local_steps = 9, .batch_size = 8}).result;
  EXPECT_EQ(steps.steps, 9U);
  EXPECT_EQ(steps.samples, 72U);
  const auto full = train_once(kSoftmax, view, {.local_steps = 3, .batch_size = 1 << 20}).result;
  EXPECT_EQ(full.samples, 150U);
}

TEST(LocalTrainer, LearnsClusters) {
  const auto view = clusters(400, 10, 4);
  const auto model = model_for(view, kSmallMlp);
  for (const std::string_view optimizer : kOptimizers) {
    const bool adaptive = optimizer.starts_with("adam");
    const TrainOptions options{.local_epochs = 10,
                               .batch_size = 16,
                               .optimizer = std::string(optimizer),
                               .learning_rate = adaptive ? 0.01 : 0.05};
    const Trained trained = train_once(kSmallMlp, view, options);
    EXPECT_GT(evaluate(*model, trained.parameters.values(), view).value().accuracy, 0.98)
        << optimizer;
  }
}

TEST(LocalTrainer, SameArgumentsGiveSameBitsWhateverItDidBefore) {
  const auto view = clusters(60, 6, 3);
  const auto larger = clusters(500, 6, 3);
  for (const std::string_view optimizer : kOptimizers) {
    const TrainOptions options{
        .local_epochs = 2, .batch_size = 100, .optimizer = std::string(optimizer)};
    const Trained fresh = train_once(kSmallMlp, view, options);
    const auto model = model_for(view, kSmallMlp);
    LocalTrainer used(model, options);
    train_from_start(used, *model, larger);
    const Trained again = train_from_start(used, *model, view);
    EXPECT_EQ(fresh.parameters, again.parameters) << optimizer;
    EXPECT_EQ(fresh.result.train_loss, again.result.train_loss);
  }
}

TEST(LocalTrainer, OtherBatchesGiveAnotherModel) {
  const auto view = clusters(60, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  LocalTrainer trainer(model, {.batch_size = 8});
  auto a = model::initial_parameters(*model, 5), b = a;
  ASSERT_TRUE(trainer.train(a.values(), view, 1, 1, batches(1), kGo));
  ASSERT_TRUE(trainer.train(b.values(), view, 1, 1, batches(2), kGo));
  EXPECT_FALSE(a == b);
}

TEST(LocalTrainer, TheFusedStepIsTheUnfusedOne) {
  const auto view = clusters(60, 6, 3);
  TrainOptions options{.local_epochs = 2, .batch_size = 8, .weight_decay = 0.1};
  const Trained fused = train_once(kSmallMlp, view, options);
  options.clip_norm = 1e9;  // never reached, but the gradient must be seen whole
  const Trained unfused = train_once(kSmallMlp, view, options);
  EXPECT_LT(largest_difference(fused.parameters, unfused.parameters), 1e-6);
}

TEST(LocalTrainer, ABatchOfManyPassesIsOneStep) {
  const auto view = clusters(3000, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  ASSERT_LT(model->rows_max(), 3000U);
  const TrainOptions options{.batch_size = 3000, .learning_rate = 0.5};
  const Trained trained = train_once(kSmallMlp, view, options);
  EXPECT_EQ(trained.result.steps, 1U);
  const auto start = model::initial_parameters(*model, 5);
  // The same gradient from 3000 single rows, summed in double.
  std::vector<double> sum(start.size());
  std::vector<float> g(start.size());
  const auto workspace = model->make_workspace(1);
  for (std::size_t i = 0; i < view.size(); ++i) {
    const std::int32_t label = view.label(i);
    model->gradient(start.values(), {view.features(i).data(), &label, 1}, 1, {g, 0, 1}, *workspace);
    for (std::size_t k = 0; k < g.size(); ++k) sum[k] += static_cast<double>(g[k]);
  }
  for (std::size_t k = 0; k < g.size(); ++k) {
    ASSERT_NEAR(trained.parameters.values()[k], start.values()[k] - 0.5 * sum[k] / 3000, 1e-5);
  }
}

TEST(LocalTrainer, ClippingShortensTheStepToTheNorm) {
  const auto view = clusters(32, 6, 3);
  const auto model = model_for(view, kSoftmax);
  const auto start = model::initial_parameters(*model, 5);
  const TrainOptions options{
      .local_steps = 1, .batch_size = 32, .learning_rate = 0.5, .clip_norm = 0.01};
  const Trained trained = train_once(kSoftmax, view, options);
  double squares = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    squares += std::pow(static_cast<double>(trained.parameters.values()[i]) - start.values()[i], 2);
  }
  EXPECT_NEAR(std::sqrt(squares), 0.5 * 0.01, 1e-6);
}

TEST(LocalTrainer, DivergenceIsNamed) {
  const auto view = clusters(60, 6, 3);
  for (const char* optimizer : {"sgd", "momentum", "nesterov"}) {  // Adam's steps are bounded
    const auto model = model_for(view, kSmallMlp);
    LocalTrainer trainer(model, {.local_epochs = 50,
                                 .batch_size = 8,
                                 .optimizer = optimizer,
                                 .learning_rate = 1e6,
                                 .weight_decay = 1e3});
    auto parameters = model::initial_parameters(*model, 5);
    const auto result = trainer.train(parameters.values(), view, 4, 10, batches(), kGo);
    ASSERT_FALSE(result) << optimizer;
    EXPECT_EQ(result.error().code(), "diverged");
    EXPECT_NE(result.error().message().find("of round 4"), std::string::npos);
  }
}

TEST(LocalTrainer, AParameterThatIsNotFiniteIsNamedEvenIfNoLossShowsIt) {
  const auto view = clusters(8, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  LocalTrainer trainer(model, {.local_steps = 1, .batch_size = 8, .learning_rate = 0});
  auto parameters = model::initial_parameters(*model, 5);
  // A hidden unit that never fires hides what follows it from the loss.
  const auto* bias = model->layout()->find("fc1.bias");
  const auto* weight = model->layout()->find("fc2.weight");
  parameters.values(*bias)[0] = -1e9F;
  parameters.values(*weight)[0] = std::numeric_limits<float>::max();
  ASSERT_TRUE(trainer.train(parameters.values(), view, 1, 1, batches(), kGo));
  parameters.values(*bias)[0] = -std::numeric_limits<float>::infinity();
  const auto result = trainer.train(parameters.values(), view, 1, 1, batches(), kGo);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), "diverged");
}

TEST(LocalTrainer, StopsWhenAsked) {
  const auto view = clusters(60, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  LocalTrainer trainer(model, {});
  auto parameters = model::initial_parameters(*model, 5);
  const auto before = parameters;
  const std::atomic<bool> stop = true;
  const auto result = trainer.train(parameters.values(), view, 1, 1, batches(), stop);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), "stopped");
  EXPECT_EQ(result.error().kind(), ErrorKind::kRetry);
  EXPECT_EQ(parameters, before) << "no step may have been made";
}

TEST(Stepper, AStopBetweenTwoPassesChangesNothing) {
  const auto view = clusters(3000, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  Stepper stepper(model, {.batch_size = 3000});
  stepper.begin(3000);
  std::vector<std::uint32_t> rows(3000);
  std::iota(rows.begin(), rows.end(), 0U);
  auto parameters = model::initial_parameters(*model, 5);
  const auto before = parameters;
  const std::atomic<bool> stop = true;
  EXPECT_TRUE(std::isnan(stepper.step(parameters.values(), *view.dataset, rows, 0.1, &stop)));
  EXPECT_EQ(parameters, before);
}

TEST(LocalTrainer, RefusesDataThatDoesNotFit) {
  const auto view = clusters(60, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  LocalTrainer trainer(model, {});
  auto parameters = model::initial_parameters(*model, 5);
  const auto code = [&](const data::DatasetView& other) {
    return trainer.train(parameters.values(), other, 1, 1, batches(), kGo).error().code();
  };
  EXPECT_EQ(code(rows_of(view, {})), "no-data");
  EXPECT_EQ(code(clusters(60, 7, 3)), "data-mismatch");
  EXPECT_EQ(code(clusters(60, 6, 4)), "data-mismatch");
  EXPECT_TRUE(trainer.train(parameters.values(), clusters(60, 6, 2), 1, 1, batches(), kGo));
}

}  // namespace
}  // namespace starling::train
