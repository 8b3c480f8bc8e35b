// SPDX-License-Identifier: Apache-2.0
// Corrections, the optimizer's state between rounds, and what strategies ask of a model as a whole.
#include "core/train/training_hooks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/data/batch_sampler.h"
#include "core/train/evaluator.h"
#include "core/train/local_trainer.h"
#include "tests/train/training_data.h"

namespace starling::train {
namespace {

class HookedOptimizer : public ::testing::TestWithParam<std::string_view> {
 protected:
  TrainOptions options() const {
    return {.local_epochs = 2,
            .batch_size = 8,
            .optimizer = std::string(GetParam()),
            .learning_rate = 0.05,
            .weight_decay = 0.01};
  }
};
INSTANTIATE_TEST_SUITE_P(All, HookedOptimizer, ::testing::ValuesIn(kOptimizers),
                         [](const auto& param) { return std::string(param.param); });

// g <- g + 0.5 y - 0.25, with the same operations in the same order everywhere.
void shift(std::span<const float> y, std::span<float> gradient) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float pull = 0.5F * y[i] - 0.25F;
    gradient[i] += pull;
  }
}

model::Parameters trained(const TrainOptions& options, const data::DatasetView& view,
                          const TrainingHooks<float>& hooks, Rng rng = batches()) {
  const auto model = model_for(view, kSmallMlp);
  LocalTrainer trainer(model, options);
  auto parameters = model::initial_parameters(*model, 5);
  const auto result = trainer.train(parameters.values(), view, 1, 1, rng, kGo, hooks);
  EXPECT_TRUE(result) << result.error().message();
  return parameters;
}

TEST_P(HookedOptimizer, ACorrectionIsThatOfAPlainLoop) {
  const auto view = clusters(60, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  auto y = model::initial_parameters(*model, 5);
  Optimizer optimizer(options(), y.size(), model->kernels());
  data::BatchSampler sampler(view, 8, batches());
  std::vector<float> gradient(y.size());
  const auto workspace = model->make_workspace(8);
  RowBlock block;
  block.reserve(8, model->input().features());
  for (int step = 0; step < 16; ++step) {
    const auto rows = sampler.next();
    model->gradient(y.values(), block.gather(*view.dataset, rows), static_cast<double>(rows.size()),
                    {gradient, 0, 1}, *workspace);
    shift(y.values(), gradient);
    optimizer.step(y.values(), gradient, 0.05);
  }
  EXPECT_EQ(trained(options(), view, {.correct = shift}), y);
  EXPECT_FALSE(trained(options(), view, {}) == y) << "the correction changes the model";
}

TEST_P(HookedOptimizer, HooksWithoutEffectChangeNothing) {
  const auto view = clusters(60, 6, 3);
  TrainOptions unfused = options();
  unfused.clip_norm = 1e9;  // never reached; the same path as with a correction
  const auto plain = trained(unfused, view, {});
  const auto nothing = [](std::span<const float>, std::span<float>) {};
  EXPECT_EQ(trained(unfused, view, {.correct = nothing}), plain);
  EXPECT_EQ(trained(options(), view, {.correct = nothing}), plain);
  OptimizerState<float> state;
  EXPECT_EQ(trained(options(), view, {.optimizer = &state}), trained(options(), view, {}));
}

TEST(TrainingHooks, ACorrectionSeesTheMeanOverAllPassesBeforeItIsClipped) {
  const auto view = clusters(3000, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  ASSERT_LT(model->rows_max(), 3000U);
  const auto start = model::initial_parameters(*model, 5);
  linalg::AlignedVector<float> expected(start.size());
  LocalTrainer trainer(model, {.batch_size = 3000, .clip_norm = 1e-3});
  ASSERT_TRUE(trainer.full_gradient(start.values(), view, expected, kGo));
  int calls = 0;
  const auto look = [&](std::span<const float> y, std::span<float> gradient) {
    ++calls;
    EXPECT_TRUE(std::ranges::equal(y, start.values()));
    for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(gradient[i], expected[i], 1e-6);
    std::ranges::fill(gradient, 1.0F);
  };
  auto y = start;
  ASSERT_TRUE(trainer.train(y.values(), view, 1, 1, batches(), kGo, {.correct = look}));
  EXPECT_EQ(calls, 1);
  double squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    squares += std::pow(static_cast<double>(y.values()[i]) - start.values()[i], 2);
  }
  EXPECT_NEAR(std::sqrt(squares), 0.1 * 1e-3, 1e-6) << "clipped after the correction";
}

TEST(TrainingHooks, ACorrectionThatIsNotFiniteDiverges) {
  const auto view = clusters(60, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  LocalTrainer trainer(model, {});
  auto y = model::initial_parameters(*model, 5);
  const auto spoil = [](std::span<const float>, std::span<float> gradient) {
    gradient[0] = std::numeric_limits<float>::infinity();
  };
  const auto result = trainer.train(y.values(), view, 1, 1, batches(), kGo, {.correct = spoil});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), "diverged");
}

// Batches of one row of equal rows: both halves of a long round see what two short ones see.
TEST_P(HookedOptimizer, TwoRoundsContinuedAreOneLongRound) {
  const auto view = rows_of(clusters(60, 6, 3), {7});
  const auto model = model_for(view, kSmallMlp);
  TrainOptions steps = options();
  steps.local_epochs = 1;
  steps.local_steps = 10;
  steps.batch_size = 1;
  LocalTrainer half(model, steps);
  steps.local_steps = 20;
  const auto whole = trained(steps, view, {});
  auto y = model::initial_parameters(*model, 5);
  OptimizerState<float> state;
  for (Round round = 1; round <= 2; ++round) {
    const auto result =
        half.train(y.values(), view, round, 2, batches(), kGo, {.optimizer = &state});
    ASSERT_TRUE(result) << result.error().message();
    EXPECT_EQ(state.steps, GetParam() == "sgd" ? 0 : 10 * round);
    EXPECT_EQ(result->rate, 0.05);
  }
  EXPECT_EQ(y, whole);
  const bool has_velocity = GetParam() != "sgd";
  EXPECT_EQ(state.first.size(), has_velocity ? y.size() : 0);
  EXPECT_EQ(state.second.size(), GetParam().starts_with("adam") ? y.size() : 0);
  if (!has_velocity) return;
  auto anew = model::initial_parameters(*model, 5);
  for (Round round = 1; round <= 2; ++round) {
    ASSERT_TRUE(half.train(anew.values(), view, round, 2, batches(), kGo));
  }
  EXPECT_FALSE(anew == whole) << "without the state the second round is another";
}

TEST_P(HookedOptimizer, RefusesAStateOfAnotherSizeOrKind) {
  const auto view = clusters(60, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  const std::size_t size = model->layout()->size();
  LocalTrainer trainer(model, options());
  const std::size_t first = GetParam() == "sgd" ? 0 : size;
  const std::size_t second = GetParam().starts_with("adam") ? size : 0;
  const auto state_of = [](std::size_t m, std::size_t v, std::uint64_t steps) {
    return OptimizerState<float>{linalg::AlignedVector<float>(m), linalg::AlignedVector<float>(v),
                                 steps};
  };
  const auto code = [&](OptimizerState<float> state) -> std::string {
    auto y = model::initial_parameters(*model, 5);
    const OptimizerState<float> before = state;
    const auto result =
        trainer.train(y.values(), view, 1, 1, batches(), kGo, {.optimizer = &state});
    if (result) return "trained";
    EXPECT_EQ(state.first, before.first) << "as it was";
    return result.error().code();
  };
  EXPECT_EQ(code(state_of(first, second, first > 0 ? 3 : 0)), "trained");
  EXPECT_EQ(code({}), "trained");
  EXPECT_EQ(code(state_of(first + 1, second, 3)), "bad-optimizer-state");
  EXPECT_EQ(code(state_of(first, second + 1, 3)), "bad-optimizer-state");
  EXPECT_EQ(code(state_of(first, second == 0 ? size : 0, 3)), "bad-optimizer-state");
  if (first > 0) {
    EXPECT_EQ(code(state_of(0, 0, 3)), "bad-optimizer-state");
    EXPECT_EQ(code(state_of(first, second, 0)), "bad-optimizer-state") << "moments of no step";
  }
}

TEST(FullGradient, IsTheMeanOfTheBatchesGradientsPlusTheDecay) {
  const auto all = clusters(3000, 6, 3);
  const auto model = model_for(all, kSmallMlp);
  ASSERT_LT(model->rows_max(), 3000U);
  const auto x = model::initial_parameters(*model, 5);
  LocalTrainer trainer(model, {.weight_decay = 0.1, .clip_norm = 1e-9});
  std::vector<std::uint32_t> odd;
  for (std::uint32_t row = 1; row < 3000; row += 2) odd.push_back(row);
  for (const auto& view : {all, rows_of(all, odd)}) {
    linalg::AlignedVector<float> gradient(x.size());
    const auto loss = trainer.full_gradient(x.values(), view, gradient, kGo);
    ASSERT_TRUE(loss) << loss.error().message();
    std::vector<double> sum(x.size());
    std::vector<float> g(x.size());
    double loss_sum = 0;
    const auto workspace = model->make_workspace(1);
    for (std::size_t i = 0; i < view.size(); ++i) {
      const std::int32_t label = view.label(i);
      loss_sum +=
          model
              ->gradient(x.values(), {view.features(i).data(), &label, 1}, 1, {g, 0, 1}, *workspace)
              .loss_sum;
      for (std::size_t k = 0; k < g.size(); ++k) sum[k] += static_cast<double>(g[k]);
    }
    const auto n = static_cast<double>(view.size());
    EXPECT_NEAR(*loss, loss_sum / n, 1e-6);
    for (std::size_t k = 0; k < g.size(); ++k) {
      ASSERT_NEAR(gradient[k], sum[k] / n + 0.1 * static_cast<double>(x.values()[k]), 1e-6);
    }
    const auto same = trainer.loss(x.values(), view);
    ASSERT_TRUE(same);
    EXPECT_NEAR(*same, *loss, 1e-6);
    EXPECT_EQ(*same, evaluate(*model, x.values(), view)->loss);
  }
}

TEST(FullGradient, IsTheSlopeOfTheLoss) {
  const auto view = clusters(200, 6, 3);
  const auto model = model_for(view, {.kind = "softmax-regression"});
  const auto x = model::initial_parameters(*model, 5);
  LocalTrainer trainer(model, {});
  linalg::AlignedVector<float> gradient(x.size());
  ASSERT_TRUE(trainer.full_gradient(x.values(), view, gradient, kGo));
  constexpr float kStep = 1.0F / 64;  // the loss is computed in float: not too small
  for (std::size_t k = 0; k < x.size(); ++k) {
    auto above = x, below = x;
    above.values()[k] += kStep;
    below.values()[k] -= kStep;
    const double slope =
        (*trainer.loss(above.values(), view) - *trainer.loss(below.values(), view)) / (2 * kStep);
    ASSERT_NEAR(gradient[k], slope, 2e-4) << "parameter " << k;
  }
}

TEST(FullGradient, SameBitsWhateverTheTrainerDidBefore) {
  const auto view = clusters(1500, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  auto x = model::initial_parameters(*model, 5);
  LocalTrainer fresh(model, {.batch_size = 8}), used(model, {.batch_size = 8});
  auto y = x;
  ASSERT_TRUE(used.train(y.values(), view, 1, 1, batches(), kGo));
  linalg::AlignedVector<float> a(x.size()), b(x.size());
  EXPECT_EQ(*fresh.full_gradient(x.values(), view, a, kGo),
            *used.full_gradient(x.values(), view, b, kGo));
  EXPECT_EQ(a, b);
  auto after = x;
  ASSERT_TRUE(used.train(after.values(), view, 1, 1, batches(), kGo));
  EXPECT_EQ(after, y) << "nor does it change the training after it";
}

TEST(FullGradient, FailuresAreNamed) {
  const auto view = clusters(60, 6, 3);
  const auto model = model_for(view, kSmallMlp);
  LocalTrainer trainer(model, {});
  auto x = model::initial_parameters(*model, 5);
  linalg::AlignedVector<float> gradient(x.size());
  const auto code = [&](const data::DatasetView& rows, const std::atomic<bool>& stop) {
    return trainer.full_gradient(x.values(), rows, gradient, stop).error().code();
  };
  const std::atomic<bool> stop = true;
  EXPECT_EQ(code(view, stop), "stopped");
  EXPECT_EQ(code(rows_of(view, {}), kGo), "no-data");
  EXPECT_EQ(trainer.loss(x.values(), clusters(60, 7, 3)).error().code(), "data-mismatch");
  std::ranges::fill(x.values(), std::numeric_limits<float>::max());
  EXPECT_EQ(code(view, kGo), "diverged");
  EXPECT_EQ(trainer.loss(x.values(), view).error().code(), "diverged");
}

}  // namespace
}  // namespace starling::train
