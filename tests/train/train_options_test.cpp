// SPDX-License-Identifier: Apache-2.0
#include "core/train/train_options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace starling::train {
namespace {

std::string refusal(const TrainOptions& options) {
  const auto result = validate(options);
  if (result) return "none";
  EXPECT_EQ(result.error().code(), "bad-train-options");
  return result.error().message();
}

TEST(TrainOptions, DefaultsAreValid) { EXPECT_EQ(refusal({}), "none"); }

TEST(TrainOptions, RefusalNamesTheKeyAndTheValue) {
  EXPECT_NE(refusal({.batch_size = 0}).find("train.batch-size is 0"), std::string::npos);
  EXPECT_NE(refusal({.optimizer = "lion"}).find("\"lion\"; take one of sgd, momentum"),
            std::string::npos);
  EXPECT_NE(refusal({.learning_rate = -1}).find("train.learning-rate"), std::string::npos);
  EXPECT_NE(refusal({.learning_rate = std::nan("")}).find("nan"), std::string::npos);
  EXPECT_NE(refusal({.clip_norm = std::numeric_limits<double>::infinity()}).find("inf"),
            std::string::npos);
  EXPECT_NE(refusal({.beta2 = 1.5}).find("train.beta2"), std::string::npos);
  EXPECT_NE(refusal({.schedule = "linear"}).find("cosine"), std::string::npos);
}

TEST(LearningRate, WarmsUpLinearlyAndStaysConstant) {
  const TrainOptions options{.learning_rate = 0.5, .warmup_rounds = 4};
  for (Round t = 1; t <= 4; ++t) EXPECT_DOUBLE_EQ(learning_rate_at(options, t, 10), 0.1 * t);
  for (Round t = 5; t <= 10; ++t) EXPECT_EQ(learning_rate_at(options, t, 10), 0.5);
}

TEST(LearningRate, StepsDown) {
  const TrainOptions options{
      .learning_rate = 1, .schedule = "step", .step_rounds = 3, .gamma = 0.5};
  const double expected[] = {1, 1, 1, 0.5, 0.5, 0.5, 0.25};
  for (Round t = 1; t <= 7; ++t) EXPECT_EQ(learning_rate_at(options, t, 7), expected[t - 1]);
}

TEST(LearningRate, FollowsTheCosine) {
  const TrainOptions options{.learning_rate = 2, .schedule = "cosine"};
  EXPECT_EQ(learning_rate_at(options, 1, 4), 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 2, 4), 1 + std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 3, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 4, 4), 1 - std::sqrt(0.5));
}

TEST(LearningRate, TheScheduleBeginsAfterTheWarmUp) {
  const TrainOptions plain{.learning_rate = 2, .schedule = "cosine"};
  TrainOptions warm = plain;
  warm.warmup_rounds = 3;
  for (Round t = 1; t <= 5; ++t) {
    EXPECT_EQ(learning_rate_at(warm, t + 3, 8), learning_rate_at(plain, t, 5));
  }
}

TEST(LearningRate, IsFiniteAtTheEdges) {
  for (const char* schedule : {"constant", "step", "cosine"}) {
    for (const int warmup : {0, 1, 100}) {
      const TrainOptions options{.schedule = schedule, .warmup_rounds = warmup};
      for (const Round rounds : {0U, 1U, 2U}) {
        for (const Round round : {0U, 1U, 2U, 1000U}) {
          const double rate = learning_rate_at(options, round, rounds);
          EXPECT_TRUE(rate > 0 && rate <= options.learning_rate) << schedule << rate;
        }
      }
    }
  }
}

}  // namespace
}  // namespace starling::train
