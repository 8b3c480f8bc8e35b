// SPDX-License-Identifier: Apache-2.0
// FedAvg with one full-batch local step is gradient descent on the union of the data: held against
// gradient descent in double precision, written apart.
#include <gtest/gtest.h>

#include <cmath>

#include "coordinator/simulation/federation_simulator.h"
#include "core/base/rng.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

constexpr int kFeatures = 4;
constexpr int kClasses = 3;

std::shared_ptr<const data::Dataset> make_dataset(std::size_t rows, double scale) {
  Rng rng({.seed = 3, .purpose = Purpose::kTest});
  data::Dataset::Content content{.name = "test", .shape = {1, 1, kFeatures}, .classes = kClasses};
  for (std::size_t i = 0; i < rows; ++i) {
    const auto label = static_cast<std::int32_t>(rng.below(kClasses));
    for (int f = 0; f < kFeatures; ++f) {
      content.features.push_back(static_cast<float>(scale * (rng.normal() + (f == label))));
    }
    content.labels.push_back(label);
  }
  return data::Dataset::make(std::move(content)).value();
}

// Where the weight of class c and feature f stands.
std::size_t at(int c, int f) {
  return static_cast<std::size_t>(c) * kFeatures + static_cast<std::size_t>(f);
}

// Softmax regression by hand: weight [classes, features], then bias [classes]; mean cross-entropy.
std::vector<double> gradient_descent(const data::Dataset& dataset, std::vector<double> parameters,
                                     double rate, int steps) {
  const auto rows = static_cast<double>(dataset.rows());
  for (int step = 0; step < steps; ++step) {
    std::vector<double> gradient(parameters.size(), 0.0);
    for (std::size_t i = 0; i < dataset.rows(); ++i) {
      const auto x = dataset.row(i);
      double logits[kClasses];
      double largest = -1e300;
      for (int c = 0; c < kClasses; ++c) {
        logits[c] = parameters[kClasses * kFeatures + static_cast<std::size_t>(c)];
        for (int f = 0; f < kFeatures; ++f) {
          logits[c] += parameters[at(c, f)] * x[f];
        }
        largest = std::max(largest, logits[c]);
      }
      double total = 0;
      for (double& logit : logits) total += logit = std::exp(logit - largest);
      for (int c = 0; c < kClasses; ++c) {
        const double error = logits[c] / total - (dataset.labels()[i] == c ? 1 : 0);
        for (int f = 0; f < kFeatures; ++f) {
          gradient[at(c, f)] += error * x[f] / rows;
        }
        gradient[kClasses * kFeatures + static_cast<std::size_t>(c)] += error / rows;
      }
    }
    for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p] -= rate * gradient[p];
  }
  return parameters;
}

struct Federated {
  std::vector<double> initial;
  std::vector<double> final;
  store::Run run;
  std::vector<store::RoundRecord> rounds;
};

Federated federated(const std::shared_ptr<const data::Dataset>& dataset,
                    const std::vector<std::size_t>& sizes, double rate, int rounds) {
  Job job;
  job.job.rounds = rounds;
  job.training.model.kind = "softmax-regression";
  job.training.train.local_steps = 1;
  job.training.train.batch_size = 1 << 20;
  job.training.train.learning_rate = rate;
  job.round.cohort = static_cast<int>(sizes.size());
  job.round.min_updates = job.round.cohort;
  job.round.attempts_max = 1;
  job.aggregation.weight_ratio_max = 0;  // as FedAvg weighs, however unequal the parts
  const SystemClock clock;
  const auto store = store::open_store_in_memory();
  const RunContext context = prepare_run(job, dataset).value();
  Federated result;
  const auto initial = model::initial_parameters(*context.model, job.job.seed);
  result.initial.assign(initial.values().begin(), initial.values().end());
  FederationSimulator simulator(
      *store, clock, {}, {.on_round = [&](const RoundSummary&, const RoundOutcome& outcome) {
        const std::span<const float> values = outcome.next->model->values();
        result.final.assign(values.begin(), values.end());
      }});
  std::uint32_t next = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    auto rows = std::make_shared<std::vector<std::uint32_t>>();
    for (std::size_t i = 0; i < sizes[k]; ++i) rows->push_back(next++);
    simulator.add_client("client-" + std::to_string(k + 1), {.training = {dataset, rows}});
  }
  const RunId id = simulator.run(context, {}).value();
  result.run = *store->find_run(id).value();
  result.rounds = store->rounds(id, 1).value();
  return result;
}

// Errors of float training: each local step rounds the gradient's sums and the step, relative to
// the largest change; the model itself is kept in float.
void expect_equal(const std::vector<double>& actual, const std::vector<double>& wanted,
                  const std::vector<double>& initial) {
  ASSERT_EQ(actual.size(), wanted.size());
  double largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max({largest, std::abs(wanted[i]), std::abs(wanted[i] - initial[i])});
  }
  const double tolerance = 32 * largest * 0x1p-23;
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(actual[i], wanted[i], tolerance) << i;
}

TEST(FedAvg, OneFullBatchStepIsGradientDescentForAnyPartition) {
  const auto dataset = make_dataset(1000, 1);
  const std::vector<std::vector<std::size_t>> partitions = {
      {1000}, {500, 500}, {1, 999}, {1, 2, 3, 994}, {100, 200, 300, 400}, {999, 1}};
  for (const auto& sizes : partitions) {
    const Federated result = federated(dataset, sizes, 0.5, 5);
    ASSERT_EQ(result.run.state, store::RunState::kCompleted);
    expect_equal(result.final, gradient_descent(*dataset, result.initial, 0.5, 5), result.initial);
  }
}

TEST(FedAvg, AlsoWithClientsOf1And49999Rows) {
  const auto dataset = make_dataset(50'000, 1);
  const Federated result = federated(dataset, {1, 49'999}, 0.5, 3);
  ASSERT_EQ(result.run.state, store::RunState::kCompleted);
  EXPECT_EQ(result.rounds[0].result.contributions[0].weight, 1);
  EXPECT_EQ(result.rounds[0].result.contributions[1].weight, 49'999);
  expect_equal(result.final, gradient_descent(*dataset, result.initial, 0.5, 3), result.initial);
}

TEST(FedAvg, AlsoWithFeaturesScaledBy10000) {
  const auto dataset = make_dataset(50'000, 10'000);
  for (const double rate : {1e-9, 1e-4, 0.5, 100.0}) {
    const Federated result = federated(dataset, {1, 49'999}, rate, 1);
    ASSERT_EQ(result.run.state, store::RunState::kCompleted) << rate;
    expect_equal(result.final, gradient_descent(*dataset, result.initial, rate, 1), result.initial);
  }
}

TEST(FedAvg, WhatCannotBeSummedIsRefusedByName) {
  const auto dataset = make_dataset(1000, 10'000);
  const Federated result = federated(dataset, {400, 600}, 1e6, 1);
  EXPECT_EQ(result.run.state, store::RunState::kFailed);
  ASSERT_EQ(result.rounds.size(), 1U);
  ASSERT_EQ(result.rounds[0].result.failures.size(), 2U);
  EXPECT_EQ(result.rounds[0].result.failures[0].code, "value-out-of-range");
}

}  // namespace
}  // namespace starling::coordinator
