// SPDX-License-Identifier: Apache-2.0
#include "core/train/evaluator.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/train/training_data.h"

namespace starling::train {
namespace {

const model::ModelSpec kMlp = {.kind = "mlp", .hidden = {12}};

TEST(Evaluate, IsTheMeanOverSingleRows) {
  const auto view = clusters(700, 6, 3);
  const auto model = model_for(view, kMlp);
  const auto parameters = model::initial_parameters(*model, 5);
  const auto workspace = model->make_workspace(1);
  double loss = 0;
  std::uint64_t correct = 0;
  for (std::size_t i = 0; i < view.size(); ++i) {
    const std::int32_t label = view.label(i);
    const auto score =
        model->score(parameters.values(), {view.features(i).data(), &label, 1}, *workspace);
    loss += score.loss_sum;
    correct += score.correct;
  }
  const Evaluation result = evaluate(*model, parameters.values(), view).value();
  EXPECT_EQ(result.samples, 700U);
  EXPECT_NEAR(result.loss, loss / 700, 1e-12);
  EXPECT_EQ(result.accuracy, static_cast<double>(correct) / 700);
}

TEST(Evaluate, GivesTheSameBitsForAnyNumberOfThreads) {
  const auto all = clusters(2000, 6, 3);
  std::vector<std::uint32_t> odd;
  for (std::uint32_t i = 1; i < 2000; i += 2) odd.push_back(i);
  for (const auto& view : {all, rows_of(all, odd)}) {
    const auto model = model_for(view, kMlp);
    const auto parameters = model::initial_parameters(*model, 5);
    const Evaluation alone = evaluate(*model, parameters.values(), view).value();
    for (const unsigned threads : {1U, 2U, 3U}) {
      ComputePool pool(threads);
      for (int repetition = 0; repetition < 5; ++repetition) {
        const Evaluation result = evaluate(*model, parameters.values(), view, &pool).value();
        EXPECT_EQ(std::bit_cast<std::uint64_t>(result.loss),
                  std::bit_cast<std::uint64_t>(alone.loss));
        EXPECT_EQ(result.accuracy, alone.accuracy);
      }
    }
  }
}

TEST(Evaluate, AViewOfEveryRowIsTheDataset) {
  const auto all = clusters(600, 6, 3);
  std::vector<std::uint32_t> rows(600);
  std::iota(rows.begin(), rows.end(), 0U);
  const auto model = model_for(all, kMlp);
  const auto parameters = model::initial_parameters(*model, 5);
  EXPECT_EQ(evaluate(*model, parameters.values(), all).value().loss,
            evaluate(*model, parameters.values(), rows_of(all, rows)).value().loss);
}

TEST(Evaluate, ReportsALossThatIsNotANumber) {
  const auto view = clusters(600, 6, 3);
  const auto model = model_for(view, kMlp);
  auto parameters = model::initial_parameters(*model, 5);
  const auto* bias = model->layout()->find("fc2.bias");
  parameters.values(*bias)[1] = std::numeric_limits<float>::quiet_NaN();
  const Evaluation result = evaluate(*model, parameters.values(), view).value();
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_EQ(result.accuracy, 0);
}

TEST(Evaluate, RefusesDataThatDoesNotFit) {
  const auto view = clusters(60, 6, 3);
  const auto model = model_for(view, kMlp);
  const auto parameters = model::initial_parameters(*model, 5);
  const auto code = [&](const data::DatasetView& other) {
    return evaluate(*model, parameters.values(), other).error().code();
  };
  EXPECT_EQ(code(rows_of(view, {})), "no-data");
  EXPECT_EQ(code(clusters(60, 7, 3)), "data-mismatch");
}

}  // namespace
}  // namespace starling::train
