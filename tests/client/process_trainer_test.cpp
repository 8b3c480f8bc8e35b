// SPDX-License-Identifier: Apache-2.0
// Training by a process beside the same arithmetic written down here, in double.
#include "core/client/process_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/rng.h"
#include "core/model/external_model.h"
#include "tests/client/fake_trainer.h"

namespace starling::client {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kFeatures = 3, kRows = 40, kSize = 2 + kFeatures;
constexpr std::size_t kCounter = 1;  // b, counter, w

using Vector = std::vector<double>;

struct Row {
  std::array<double, kFeatures> x;
  double y;
};

// As fake_trainer.py makes them.
std::vector<Row> fake_rows(std::string_view client) {
  std::size_t key = 0;
  for (const char c : client) key += static_cast<unsigned char>(c);
  std::vector<Row> rows(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kFeatures; ++j) {
      rows[i].x[j] = static_cast<double>((i * 7 + j * 3 + key) % 11) / 10 - 0.5;
    }
    rows[i].y = 2 * rows[i].x[0] - rows[i].x[kFeatures - 1] + 0.5;
  }
  return rows;
}

Vector plain_gradient(const Vector& v, std::span<const Row> rows) {
  Vector gradient(kSize);
  for (const Row& row : rows) {
    double error = v[0] - row.y;
    for (std::size_t j = 0; j < kFeatures; ++j) error += v[2 + j] * row.x[j];
    gradient[0] += error / static_cast<double>(rows.size());
    for (std::size_t j = 0; j < kFeatures; ++j) {
      gradient[2 + j] += error * row.x[j] / static_cast<double>(rows.size());
    }
  }
  return gradient;
}

class ProcessTrainerTest : public ::testing::Test {
 protected:
  ProcessTrainerTest() {
    settings.model.kind = std::string(model::kExternalKind);
    settings.train.batch_size = 64;
    settings.train.learning_rate = 0.2;
    start.assign({0.5F, 7, 0.25F, -0.25F, 1});
  }

  FakeTrainer& fake(const std::string& mode = "honest") {
    if (!fake_) fake_ = std::make_unique<FakeTrainer>(mode);
    return *fake_;
  }
  ProcessTrainer trainer() { return {"cam-7", fake().host()}; }
  TrainingRequest request() {
    texts = settings.to_settings();
    return {.settings = texts, .seed = 11, .round = 2, .rounds = 4};
  }
  Result<TrainingReport> train(std::vector<float>& vector,
                               const train::TrainingHooks<float>& hooks = {}) {
    return trainer().train(request(), vector, hooks, fake().stop);
  }
  static void expect_near(const std::vector<float>& found, const Vector& expected) {
    for (std::size_t i = 0; i < kSize; ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
  }

  TrainingSettings settings;
  Settings texts;
  std::vector<float> start;
  std::unique_ptr<FakeTrainer> fake_;
};

const train::Correction<float> kNone = [](std::span<const float>, std::span<float>) {};

TEST_F(ProcessTrainerTest, OneFullBatchIsOneStepAlsoByGradients) {
  auto by_fit = start, by_gradients = start;
  const auto report = train(by_fit);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->weight, 40);
  EXPECT_EQ(report->steps, 1U);
  EXPECT_EQ(report->rate, 0.2);
  EXPECT_GT(report->train_loss, 0);
  const auto corrected = train(by_gradients, {.correct = kNone});
  ASSERT_TRUE(corrected) << corrected.error().message();
  EXPECT_EQ(corrected->weight, 40);
  EXPECT_EQ(corrected->steps, 1U);
  EXPECT_NEAR(corrected->train_loss, report->train_loss, 1e-6);
  const Vector gradient = plain_gradient({start.begin(), start.end()}, fake_rows("cam-7"));
  Vector expected(start.begin(), start.end());
  for (std::size_t i = 0; i < kSize; ++i) expected[i] -= 0.2 * gradient[i];
  expect_near(by_fit, expected);
  expect_near(by_gradients, expected);
}

TEST_F(ProcessTrainerTest, ABufferBecomesWhatTheTrainerSaysOfEachStep) {
  settings.train.local_steps = 3;
  settings.train.weight_decay = 0.1;
  settings.trainer.settings = R"({"counts": true})";
  auto found = start;
  ASSERT_TRUE(train(found, {.correct = kNone}));
  EXPECT_EQ(found[kCounter], start[kCounter] + 3);
}

// FedProx: gradient + mu (y - x); two epochs of 40 rows in batches of 16 are six steps.
TEST_F(ProcessTrainerTest, ACorrectionIsAddedBeforeClippingAndWeightDecay) {
  constexpr double kMu = 0.3, kDecay = 0.05, kClip = 0.4, kRate = 0.2;
  settings.train.local_epochs = 2;
  settings.train.batch_size = 16;
  settings.train.weight_decay = kDecay;
  settings.train.clip_norm = kClip;
  auto found = start;
  const auto report =
      train(found, {.correct = [&](std::span<const float> y, std::span<float> gradient) {
              for (std::size_t i = 0; i < kSize; ++i) {
                gradient[i] += static_cast<float>(kMu) * (y[i] - start[i]);
              }
              gradient[kCounter] = 5;  // of a buffer, which no optimizer changes
            }});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->steps, 6U);

  const auto rows = fake_rows("cam-7");
  const Vector x(start.begin(), start.end());
  Vector y = x;
  for (std::size_t step = 0; step < 6; ++step) {
    std::vector<Row> batch;
    for (std::size_t i = 0; i < 16; ++i) batch.push_back(rows[(step * 16 + i) % kRows]);
    Vector gradient = plain_gradient(y, batch);
    double square = 0;
    for (std::size_t i = 0; i < kSize; ++i) {
      gradient[i] += kMu * (y[i] - x[i]);
      square += gradient[i] * gradient[i];
    }
    const double factor = std::min(1.0, kClip / (std::sqrt(square) + 1e-6));
    for (std::size_t i = 0; i < kSize; ++i) {
      if (i != kCounter) y[i] -= kRate * (factor * gradient[i] + kDecay * y[i]);
    }
  }
  expect_near(found, y);
  EXPECT_EQ(found[kCounter], 7) << "weight decay changes no buffer";
}

// A momentum that goes on over two calls is that of one with as many steps.
TEST_F(ProcessTrainerTest, AnOptimizerGoesOn) {
  settings.train.optimizer = "momentum";
  settings.train.local_steps = 4;
  auto once = start;
  train::OptimizerState<float> whole;
  ASSERT_TRUE(train(once, {.optimizer = &whole}));
  settings.train.local_steps = 2;
  auto twice = start;
  train::OptimizerState<float> state;
  ASSERT_TRUE(train(twice, {.optimizer = &state}));
  ASSERT_TRUE(train(twice, {.optimizer = &state}));
  EXPECT_EQ(once, twice);
  EXPECT_EQ(whole.first, state.first);
  EXPECT_EQ(state.steps, 4U);

  const auto rows = fake_rows("cam-7");
  Vector y(start.begin(), start.end()), velocity(kSize);
  for (int step = 0; step < 4; ++step) {
    const Vector gradient = plain_gradient(y, rows);
    for (std::size_t i = 0; i < kSize; ++i) {
      velocity[i] = 0.9 * velocity[i] + gradient[i];
      y[i] -= 0.2 * velocity[i];
    }
  }
  expect_near(once, y);
}

TEST_F(ProcessTrainerTest, LossGradientAndEvaluation) {
  settings.train.weight_decay = 0.1;
  std::vector<float> gradient(kSize, 9);
  const auto loss = trainer().full_gradient(request(), start, gradient, fake().stop);
  ASSERT_TRUE(loss) << loss.error().message();
  Vector expected = plain_gradient({start.begin(), start.end()}, fake_rows("cam-7"));
  for (std::size_t i = 0; i < kSize; ++i) expected[i] += i == kCounter ? 0 : 0.1 * start[i];
  expect_near(gradient, expected);
  EXPECT_EQ(*trainer().loss(request(), start, fake().stop), *loss);
  const auto found = trainer().evaluate(request(), start, fake().stop);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->accuracy, 0.75);
  EXPECT_EQ(found->samples, 4U);
}

TEST_F(ProcessTrainerTest, ATaskSaysWhatTheRunSays) {
  settings.train.schedule = "cosine";
  settings.trainer.settings = "{\"echo\": 1,\n \"depth\": 18}";
  auto vector = start;
  const auto report = train(vector);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->rate, train::learning_rate_at(settings.train, 2, 4));
  Rng rng({.seed = 11, .purpose = Purpose::kBatches, .node = hash_name("cam-7"), .round = 2});
  const std::string seed = std::to_string(rng.next_u64() >> 11);
  fake().host().stop();
  ASSERT_EQ(fake().log.count("trainer: task"), 1U);
  const std::string& task = fake().log.lines[0];
  EXPECT_THAT(task, HasSubstr(R"({"client": "cam-7", "round": 2, "rounds": 4, "seed": )" + seed));
  EXPECT_THAT(task, HasSubstr(R"("settings": {"depth": 18, "echo": 1})"));
  EXPECT_THAT(task, HasSubstr(R"("batch-size": 64, "beta1": 0.9,)"));
  EXPECT_THAT(task, HasSubstr(R"("learning-rate": 0.17)"));
  EXPECT_THAT(task, HasSubstr(R"("optimizer": "sgd")"));
}

TEST_F(ProcessTrainerTest, AnotherModelIsRefused) {
  std::vector<float> vector(kSize + 1);
  auto refused = train(vector);
  EXPECT_EQ(refused.error(),
            unsupported("tensors-differ",
                        "the run's model has 6 values, and the trainer 'fake.py' has 3 tensors of "
                        "5 values; train the same model on all clients"));
  settings.model.layout =
      model::digest_of(*fake().host().describe("{}", fake().stop)->layout).hex();
  vector = start;
  EXPECT_TRUE(train(vector));
  settings.model.layout.front() = settings.model.layout.front() == '0' ? '1' : '0';
  refused = train(vector);
  EXPECT_EQ(refused.error().code(), "tensors-differ");
  EXPECT_THAT(refused.error().message(), HasSubstr("other names, shapes, roles or rules"));
  settings.model = {};
  refused = train(vector);
  EXPECT_EQ(refused.error().code(), "tensors-differ");
  EXPECT_THAT(refused.error().message(), HasSubstr("built-in model (mlp)"));
}

TEST_F(ProcessTrainerTest, StepsWithCorrectionsNeedGradients) {
  fake("fit-only");
  auto vector = start;
  EXPECT_TRUE(train(vector));
  EXPECT_EQ(train(vector, {.correct = kNone}).error().code(), "unsupported-operation");
  EXPECT_EQ(trainer().evaluate(request(), start, fake().stop).error().code(),
            "unsupported-operation");
}

TEST_F(ProcessTrainerTest, StepsWithCorrectionsNeedRows) {
  fake("no-rows");
  auto vector = start;
  EXPECT_TRUE(train(vector));
  const auto refused = train(vector, {.correct = kNone});
  EXPECT_EQ(refused.error().code(), "rows-unknown");
  EXPECT_THAT(refused.error().message(), HasSubstr("how many rows cam-7 has"));
}

TEST_F(ProcessTrainerTest, AHostOfManyClientsIsAskedForTheRowsOfEach) {
  fake("rows-of-clients");
  auto vector = start;
  const auto report = train(vector, {.correct = kNone});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->weight, 40);
}

TEST_F(ProcessTrainerTest, ADivergingStepIsNamed) {
  settings.train.learning_rate = 1e6;
  settings.train.local_steps = 30;
  auto vector = start;
  const auto report = train(vector, {.correct = kNone});
  EXPECT_EQ(report.error().code(), "diverged") << report.error().message();
}

TEST_F(ProcessTrainerTest, StopEndsIt) {
  fake().stop = true;
  auto vector = start;
  EXPECT_EQ(train(vector).error().code(), "stopped");
  EXPECT_EQ(train(vector, {.correct = kNone}).error().code(), "stopped");
}

}  // namespace
}  // namespace starling::client
