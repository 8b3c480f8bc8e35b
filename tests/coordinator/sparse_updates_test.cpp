// SPDX-License-Identifier: Apache-2.0
// Whole simulated federations in which some clients send their updates in the sparse form and some,
// of an earlier version, do not: fewer bytes and the same models, whatever the strategy and the
// rule, and whoever is killed.
#include <gtest/gtest.h>

#include <numeric>

#include "coordinator/simulation/federation_simulator.h"
#include "core/client/abilities.h"
#include "core/store/sqlite_store.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kClients = 4;
constexpr std::uint64_t kRounds = 3;
constexpr int kFeatures = 240;
constexpr std::size_t kRowsEach = 40;

// Rows of three features that are set, of a hundred that the client's rows have.
std::shared_ptr<const data::Dataset> one_hot_rows() {
  data::Dataset::Content content{.name = "one-hot", .shape = {1, 1, kFeatures}, .classes = 3};
  Rng rng({.seed = 1});
  for (std::size_t row = 0; row < kClients * kRowsEach; ++row) {
    std::vector<float> features(kFeatures);
    const std::size_t first = row / kRowsEach * 40;
    for (int i = 0; i < 3; ++i) features[first + rng.below(100)] = 1;
    content.features.insert(content.features.end(), features.begin(), features.end());
    content.labels.push_back(static_cast<std::int32_t>(rng.below(3)));
  }
  return data::Dataset::make(std::move(content)).value();
}

Job job_of_all(const std::string& strategy) {
  Job job;
  job.job.rounds = kRounds;
  job.training.model.kind = "softmax-regression";
  job.training.train.batch_size = 16;
  job.training.strategy.name = strategy;
  job.round.cohort = kClients;
  job.round.min_updates = kClients;
  job.round.attempts_max = 100;
  job.evaluate.every = 0;
  return job;
}

struct Outcome {
  std::vector<std::string> models;
  std::uint64_t bytes_in = 0;
  std::uint64_t crashes = 0;
};

// `dense`: so many clients are of an earlier version.
Outcome simulate(const Job& job, std::size_t dense, FederationSimulator::Options options = {}) {
  static const auto kRows = one_hot_rows();
  for (std::size_t k = 0; k < dense; ++k) {
    options.lacks["client-" + std::to_string(k + 1)] = {
        client::kSparseAbility, "model-softmax-regression", "model-mlp", "model-cnn"};
  }
  const SystemClock clock;
  const auto store = store::open_store_in_memory();
  FederationSimulator simulator(*store, clock, std::move(options), {});
  for (std::size_t k = 0; k < kClients; ++k) {
    std::vector<std::uint32_t> rows(kRowsEach);
    std::iota(rows.begin(), rows.end(), static_cast<std::uint32_t>(k * kRowsEach));
    simulator.add_client(
        "client-" + std::to_string(k + 1),
        {.training = {kRows, std::make_shared<const std::vector<std::uint32_t>>(std::move(rows))}});
  }
  const auto id = simulator.run(prepare_run(job, kRows).value(), {});
  EXPECT_TRUE(id) << (id ? "" : id.error().message());
  Outcome outcome{.crashes = simulator.crashes()};
  if (!id) return outcome;
  for (const auto& round : store->rounds(*id, 1).value()) {
    if (!round.model) continue;
    outcome.models.push_back(round.model->hex());
    outcome.bytes_in += round.result.bytes_in;
  }
  EXPECT_EQ(outcome.models.size(), static_cast<std::size_t>(job.job.rounds));
  return outcome;
}

class SparseUpdates : public ::testing::TestWithParam<const char*> {};

TEST_P(SparseUpdates, TheModelsAreThoseOfDenseOnesForFewerBytes) {
  const Job job = job_of_all(GetParam());
  const Outcome dense = simulate(job, kClients);
  const Outcome mixed = simulate(job, 2);
  const Outcome sparse = simulate(job, 0);
  EXPECT_EQ(mixed.models, dense.models);
  EXPECT_EQ(sparse.models, dense.models);
  EXPECT_LT(mixed.bytes_in, dense.bytes_in);
  EXPECT_LT(sparse.bytes_in, mixed.bytes_in);
  RecordProperty("bytes_dense", std::to_string(dense.bytes_in));
  RecordProperty("bytes_sparse", std::to_string(sparse.bytes_in));
}

INSTANTIATE_TEST_SUITE_P(Strategies, SparseUpdates,
                         ::testing::Values("fedavg", "fedprox", "fednova", "fedadam", "qfedavg",
                                           "feddyn", "scaffold", "diloco"),
                         [](const auto& test) { return std::string(test.param); });

// A client's rows have at most 100 of the 240 features, so at most 45 % of either vector is sent.
TEST(SparseUpdatesTogether, OfScaffoldLeaveOutTheControlVariatesOfTheFirstRound) {
  Job job = job_of_all("scaffold");
  job.job.rounds = 1;
  EXPECT_LT(2 * simulate(job, 0).bytes_in, simulate(job, kClients).bytes_in);
}

TEST(SparseUpdatesTogether, AreReadInTilesByRulesThatNeedAll) {
  for (const char* rule : {"median", "trimmed-mean"}) {
    Job job = job_of_all("fedavg");
    job.aggregation.rule = rule;
    const Outcome dense = simulate(job, kClients);
    const Outcome mixed = simulate(job, 1);
    EXPECT_EQ(mixed.models, dense.models) << rule;
    EXPECT_LT(mixed.bytes_in, dense.bytes_in);
  }
}

TEST(SparseUpdatesTogether, ArriveInPiecesOfAnySize) {
  const Job job = job_of_all("scaffold");
  const auto expected = simulate(job, kClients).models;
  for (const std::uint64_t chunk : {1U, 7U, 100U}) {
    FederationSimulator::Options options;
    options.transfer = {.chunk_bytes_max = chunk, .window_bytes = 3 * chunk};
    EXPECT_EQ(simulate(job, 1, std::move(options)).models, expected) << chunk;
  }
}

// Half of the clients send sparse updates, all processes are killed at random, also while they
// write: the models are those of an undisturbed federation of dense ones.
TEST(SparseUpdatesTogether, SurviveCrashes) {
  for (const char* strategy : {"fedavg", "scaffold"}) {
    const Job job = job_of_all(strategy);
    const auto expected = simulate(job, kClients).models;
    std::uint64_t crashes = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(strategy + std::string(", seed ") + std::to_string(seed));
      FederationSimulator::Options options;
      options.faults = {.seed = seed,
                        .latency_max = 10ms,
                        .training_max = 1s,
                        .disconnect = 0.01,
                        .client_crash = 0.01,
                        .coordinator_crash = 0.005,
                        .disk_crash = 0.05};
      options.transfer = {.chunk_bytes_max = 300, .window_bytes = 900};
      options.give_up_at = TimePoint(24h);
      const Outcome outcome = simulate(job, 2, std::move(options));
      EXPECT_EQ(outcome.models, expected);
      crashes += outcome.crashes;
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(crashes, 20U);
  }
}

}  // namespace
}  // namespace starling::coordinator
