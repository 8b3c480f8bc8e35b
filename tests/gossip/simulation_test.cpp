// SPDX-License-Identifier: Apache-2.0
// Whole simulated runs: the same results on any number of threads, and the mathematics that a run
// must show whatever it is made of.
#include "gossip/simulation/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <numbers>
#include <random>
#include <set>

#include "core/data/batch_sampler.h"
#include "core/data/hold_out.h"
#include "core/data/load.h"
#include "core/train/evaluator.h"
#include "core/train/stepper.h"
#include "gossip/collective/drawn_groups.h"
#include "gossip/simulation/mean_model.h"
#include "gossip/simulation/step_clock.h"
#include "gossip/simulation/synchronous_simulation.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using std::chrono::milliseconds;
using testing::run;
using testing::run_well;
using testing::small_network;
using testing::small_network_of_steps;

struct Case {
  const char* name;
  const char* algorithm;
  const char* topology;
  void (*world)(NetOptions&);
};

void quiet(NetOptions&) {}
void lossy(NetOptions& o) {
  o.network.loss = 0.1;
  o.network.jitter = "exponential:2ms";
}
void churning(NetOptions& o) {
  o.network.latency = "uniform:1ms,20ms";
  o.nodes.speed = "lognormal:1,0.5";
  o.nodes.crash_every = milliseconds(300);
  o.nodes.return_after = milliseconds(100);
  o.nodes.join_within = milliseconds(50);
}
void split(NetOptions& o) {
  o.network.splits = "50ms-120ms:2";
  o.nodes.stragglers = 0.25;
}
void reliable(NetOptions& o) {
  o.network.loss = 0.2;
  o.network.retransmit = true;
  o.train.train.optimizer = "momentum";
}
void local_steps(NetOptions& o) {
  o.train.train.local_steps = 4;
  o.train.local_steps_from = 8;
  o.train.train.schedule = "cosine";
}

class Simulations : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    All, Simulations,
    ::testing::Values(Case{"dpsgd", "dpsgd", "ring", quiet},
                      Case{"dpsgd_lossy", "dpsgd", "star", lossy},
                      Case{"dpsgd_churning", "dpsgd", "hypercube", churning},
                      Case{"dpsgd_split", "dpsgd", "exponential", split},
                      Case{"dpsgd_reliable", "dpsgd", "base-graph:k=1", reliable},
                      Case{"dpsgd_local", "dpsgd", "one-peer-exponential", local_steps},
                      Case{"sgp", "sgp", "one-peer-exponential", quiet},
                      Case{"sgp_lossy", "sgp", "exponential", lossy},
                      Case{"sgp_churning", "sgp", "exponential", churning},
                      Case{"gradient_tracking", "gradient-tracking", "ring", local_steps},
                      Case{"choco", "choco", "ring", reliable},
                      Case{"relaysgd", "relaysgd", "path", lossy},
                      Case{"qg_dsgdm", "qg-dsgdm", "ring", quiet},
                      Case{"diloco", "diloco", "exponential", local_steps},
                      Case{"all_reduce", "all-reduce", "ring", local_steps},
                      Case{"all_reduce_reliable", "all-reduce", "ring", reliable},
                      Case{"groups", "all-reduce:group=3", "ring", local_steps},
                      Case{"groups_churning", "all-reduce:group=3", "ring", churning},
                      Case{"diloco_all", "diloco-all", "ring", local_steps},
                      Case{"ad_psgd", "ad-psgd", "ring", quiet},
                      Case{"ad_psgd_churning", "ad-psgd", "ring", churning},
                      Case{"ad_psgd_split", "ad-psgd", "hypercube", split},
                      Case{"push_sum", "push-sum", "exponential", reliable},
                      Case{"push_sum_lossy", "push-sum", "exponential", lossy},
                      Case{"push_sum_churning", "push-sum", "exponential", churning}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(Simulations, AreTheSameOnAnyNumberOfThreads) {
  NetOptions options = small_network(GetParam().topology, 8, GetParam().algorithm);
  GetParam().world(options);
  const SimulationResult one = run_well(options, 1);
  const SimulationResult again = run_well(options, 1);
  const SimulationResult three = run_well(options, 3);
  EXPECT_EQ(one.trace, again.trace);
  EXPECT_EQ(one.trace, three.trace);
  EXPECT_EQ(one.mean_model, three.mean_model);
  options.run.seed = 2;
  EXPECT_NE(run_well(options, 1).trace, one.trace);
}

TEST_P(Simulations, Learn) {
  NetOptions options = small_network(GetParam().topology, 8, GetParam().algorithm);
  GetParam().world(options);
  options.run.steps = 120;
  options.evaluate.every = 120;
  const SimulationResult result = run_well(options, 2);
  const Measurement& first = result.measurements.front();
  const Measurement& last = result.measurements.back();
  EXPECT_EQ(last.step, 120U);
  EXPECT_LT(*first.eval_accuracy, 0.7);
  EXPECT_GT(*last.eval_accuracy_mean_model, 0.9);
  EXPECT_GT(last.virtual_seconds, 1);
  EXPECT_GT(last.bytes_sent, 0U);
}

// X <- W (X - rate * G) on a ring, written out for all nodes with the same batches.
TEST(Measurement, MetricsAreMeansOverTheNodesThatSayThem) {
  Measurement measurement;
  measurement.set_evaluations(std::vector<train::Evaluation>{
      {.loss = 1, .samples = 5, .metrics = {{"mae", 1}, {"r2", 0.5}}},
      {.loss = 2, .samples = 9, .metrics = {{"mae", 4}}},
      {.loss = 3, .accuracy = 0.5, .samples = 1}});
  EXPECT_EQ(measurement.eval_loss, 2);
  EXPECT_EQ(measurement.eval_accuracy, 0.5);
  EXPECT_EQ(measurement.eval_metrics, (train::Metrics{{"mae", 2.5}, {"r2", 0.5}}));
}

TEST(Simulation, DpsgdIsThePlainIteration) {
  const NetOptions options = small_network("ring", 5);
  const auto experiment = prepare(options);
  ASSERT_TRUE(experiment);
  train::Stepper stepper(experiment->model, options.train.train);
  stepper.begin(8);
  std::vector<std::vector<float>> x(
      5, {experiment->initial.values().begin(), experiment->initial.values().end()});
  std::vector<data::BatchSampler> samplers;
  for (std::uint32_t node = 0; node < 5; ++node) {
    samplers.emplace_back(experiment->parts[node], 8,
                          Rng({.seed = 1, .purpose = Purpose::kBatches, .node = node}),
                          data::LastBatch::kWrap);
  }
  for (std::uint64_t step = 0; step < options.run.steps; ++step) {
    for (std::size_t i = 0; i < 5; ++i) {
      stepper.step(x[i], *experiment->parts[i].dataset, samplers[i].next(), 0.1);
    }
    auto mixed = x;
    for (std::size_t i = 0; i < 5; ++i) {
      for (std::size_t c = 0; c < mixed[i].size(); ++c) {
        const double sum = static_cast<double>(x[i][c]) + static_cast<double>(x[(i + 1) % 5][c]) +
                           static_cast<double>(x[(i + 4) % 5][c]);
        mixed[i][c] = static_cast<float>(sum / 3);
      }
    }
    x = mixed;
  }
  const SimulationResult result = run_well(options);
  for (std::size_t c = 0; c < x[0].size(); ++c) {
    double mean = 0;
    for (const auto& model : x) mean += static_cast<double>(model[c]) / 5;
    EXPECT_NEAR(result.mean_model.values()[c], mean, 1e-5);
  }
}

// X <- W (X - rate * G) on the exponential graph of 32, a receiver keeping the weight of what is
// lost; every message is lost by itself with this probability. The accuracy, mean over the nodes.
double accuracy_under_independent_loss(const Experiment& experiment, double loss) {
  constexpr std::size_t kNodes = 32;
  constexpr std::array<std::size_t, 5> kOffsets = {1, 2, 4, 8, 16};
  const NetOptions& options = experiment.options;
  train::Stepper stepper(experiment.model, options.train.train);
  stepper.begin(static_cast<std::size_t>(options.train.train.batch_size));
  std::vector<data::BatchSampler> samplers;
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    samplers.emplace_back(experiment.parts[node], options.train.train.batch_size,
                          Rng({.seed = 77, .purpose = Purpose::kBatches, .node = node}),
                          data::LastBatch::kWrap);
  }
  const std::span<const float> initial = experiment.initial.values();
  std::vector<std::vector<float>> x(kNodes, {initial.begin(), initial.end()});
  std::mt19937 coins(5);
  std::bernoulli_distribution is_lost(loss);
  for (std::uint64_t step = 0; step < options.run.steps; ++step) {
    for (std::size_t i = 0; i < kNodes; ++i) {
      stepper.step(x[i], *experiment.parts[i].dataset, samplers[i].next(),
                   options.train.train.learning_rate);
    }
    auto mixed = x;
    for (std::size_t i = 0; i < kNodes; ++i) {
      for (const std::size_t offset : kOffsets) {
        if (is_lost(coins)) continue;
        const std::vector<float>& other = x[(i + kNodes - offset) % kNodes];
        for (std::size_t c = 0; c < other.size(); ++c) mixed[i][c] += (other[c] - x[i][c]) / 6;
      }
    }
    x = std::move(mixed);
  }
  double sum = 0;
  for (const auto& model : x) {
    sum += train::evaluate(*experiment.model, model, *experiment.evaluation, nullptr)
               ->accuracy.value();
  }
  return sum / kNodes;
}

// What is lost is lost, and nothing else.
TEST(Simulation, LossCostsWhatIndependentLossCosts) {
  NetOptions options = small_network_of_steps(1000, "exponential", 32);
  options.data.dataset = "synthetic:rows=3200,features=12,classes=10";
  options.data.partition = "shards:per-part=1";
  options.train.train.learning_rate = 0.02;
  for (const double loss : {0.001, 0.01, 0.1, 0.2}) {
    options.network.loss = loss;
    const auto experiment = prepare(options);
    ASSERT_TRUE(experiment);
    const SimulationResult result = run_well(options, 2);
    const Measurement& last = result.measurements.back();
    const auto messages = static_cast<double>(last.messages);
    EXPECT_NEAR(static_cast<double>(*last.messages_arrived), (1 - loss) * messages,
                0.01 * (1 - loss) * messages);
    EXPECT_EQ(*last.messages_arrived + *last.messages_lost, last.messages);
    EXPECT_EQ(*last.messages_late, 0U);
    EXPECT_EQ(*last.staleness, 0);
    const double expected = accuracy_under_independent_loss(*experiment, loss);
    EXPECT_NEAR(*last.eval_accuracy, expected, 0.01) << loss;
    EXPECT_LT(expected, 0.95) << "a task that tells runs apart";
    EXPECT_GT(expected, 0.3);
  }
}

// After 50 steps the rate falls to 0 (schedule step, gamma 0): mixing alone contracts the distance
// by the second eigenvalue of the ring of 32, (1 + 2 cos(2 pi / 32)) / 3 = 0.98719, and keeps the
// mean.
TEST(Simulation, WithoutTrainingARingContractsByItsSecondEigenvalue) {
  NetOptions options = small_network("ring", 32);
  options.data.dataset = "synthetic:rows=3200,features=40,classes=3";
  options.data.partition = "shards:per-part=1";
  options.train.train.schedule = "step";
  options.train.train.step_rounds = 50;
  options.train.train.gamma = 0;
  options.run.steps = 650;
  options.evaluate.every = 50;
  const SimulationResult result = run_well(options, 2);
  const auto distance = [&](std::uint64_t step) {
    return result.measurements[step / 50].consensus_distance;
  };
  // The faster modes have died out by step 400.
  const double factor = std::pow(distance(600) / distance(400), 1.0 / 200);
  const double slem = (1 + 2 * std::cos(2 * std::numbers::pi / 32)) / 3;
  EXPECT_NEAR(factor, slem, 1e-3 * slem);
  NetOptions trained = options;
  trained.run.steps = 50;
  const SimulationResult before = run_well(trained, 2);
  for (std::size_t c = 0; c < before.mean_model.size(); ++c) {
    EXPECT_NEAR(result.mean_model.values()[c], before.mean_model.values()[c], 2e-5);
  }
}

TEST(Simulation, AllReduceKeepsEverybodyEqual) {
  const SimulationResult result = run_well(small_network("ring", 6, "all-reduce"), 2);
  EXPECT_EQ(result.measurements.back().consensus_distance, 0);
  EXPECT_EQ(result.measurements.back().eval_accuracy_min,
            result.measurements.back().eval_accuracy_max);
}

// Without training each node has the mean of its group, and of k equal groups among n one exchange
// leaves (k - 1) / (n - 1) of the squared distance from the mean of all, in expectation.
TEST(Simulation, DrawnGroupsTakeTheirMeans) {
  constexpr std::uint32_t kNodes = 16;
  constexpr int kSeeds = 100;
  NetOptions options = small_network("ring", kNodes, "all-reduce:group=4");
  options.train.train.learning_rate = 0;
  options.model.initial = "spread=1";
  double left = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    options.run.seed = seed;
    const auto experiment = prepare(options);
    ASSERT_TRUE(experiment);
    ComputePool pool(2);
    SynchronousSimulation simulation(*experiment, pool);
    const auto distance = [&] {
      std::vector<std::span<const float>> models;
      for (Node node = 0; node < kNodes; ++node) models.push_back(simulation.model(node));
      return consensus_distance(models, pool);
    };
    const double before = distance();
    ASSERT_TRUE(simulation.advance(1, 1e9));
    left += std::pow(distance() / before, 2);
    for (const auto& group : collective::GroupDraw{seed, kNodes, 4}.at(0)) {
      std::vector<std::vector<float>> initial;
      for (const Node node : group) initial.push_back(experiment->initial_of(node));
      for (std::size_t at = 0; at < experiment->parameters(); ++at) {
        double mean = 0;
        for (const auto& model : initial) mean += static_cast<double>(model[at]) / 4;
        for (const Node node : group) {
          ASSERT_EQ(simulation.model(node)[at], simulation.model(group[0])[at]);
          ASSERT_NEAR(static_cast<double>(simulation.model(node)[at]), mean, 1e-6);
        }
      }
    }
  }
  EXPECT_NEAR(left / kSeeds, 3.0 / 15, 0.02);
}

TEST(Simulation, AStragglerDelaysItsGroupOnly) {
  constexpr std::uint32_t kNodes = 16;
  const starling::testing::TemporaryDirectory directory;
  NetOptions options = small_network("ring", kNodes, "all-reduce:group=4");
  options.nodes.speeds = (directory.path() / "speeds.csv").string();
  std::ofstream(options.nodes.speeds) << "node,speed\n5,0.01\n";
  const auto experiment = prepare(options);
  ASSERT_TRUE(experiment);
  StepClock clock(experiment->network, experiment->population, kNodes, false);
  ASSERT_TRUE(clock.begin(0, 1));
  for (const auto& group : collective::GroupDraw{1, kNodes, 4}.at(0)) {
    clock.all_reduce(group, 4 * experiment->parameters(), 0);
    const bool waits = std::ranges::binary_search(group, Node{5});
    for (const Node node : group) {
      EXPECT_EQ(clock.ready(node) > 1, waits) << node;
      EXPECT_EQ(clock.ready(node) < 0.1, !waits) << node;
    }
  }
}

TEST(Simulation, OneNodeTrainsAlone) {
  const SimulationResult result = run_well(small_network("ring", 1));
  EXPECT_EQ(result.totals.traffic.messages, 0U);
  EXPECT_EQ(result.totals.node_steps, 20U);
}

TEST(Simulation, EndsAtTheVirtualTimeThatWasAsked) {
  NetOptions options = small_network("ring", 4);
  options.run.steps = 1000;
  options.run.virtual_time = milliseconds(100);
  for (const char* algorithm : {"dpsgd", "ad-psgd"}) {
    options.algorithm.name = algorithm;
    const SimulationResult result = run_well(options);
    EXPECT_GE(result.totals.virtual_seconds, 0.1);
    EXPECT_LT(result.totals.virtual_seconds, 0.13);
    EXPECT_LT(result.totals.step, 12U);
  }
}

TEST(Simulation, SaysWhereItDiverged) {
  for (const char* algorithm : {"dpsgd", "ad-psgd"}) {
    NetOptions options = small_network("ring", 4, algorithm);
    options.model.kind = "mlp";
    options.train.train.learning_rate = 1e6;
    const auto result = run(options);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), "diverged");
    EXPECT_NE(result.error().message().find("node"), std::string::npos);
  }
}

TEST(Simulation, SaysThatEverybodyHasLeft) {
  for (const char* algorithm : {"dpsgd", "ad-psgd"}) {
    NetOptions options = small_network("ring", 4, algorithm);
    options.nodes.leave_after = milliseconds(20);
    options.run.steps = 100000;
    const auto result = run(options);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), "all-left");
  }
}

TEST(Simulation, SaysThatNobodyEverFinishesAStep) {
  for (const char* algorithm : {"dpsgd", "ad-psgd"}) {
    NetOptions options = small_network("ring", 4, algorithm);
    options.nodes.step_time = std::chrono::seconds(10);
    options.nodes.crash_every = milliseconds(10);
    options.nodes.return_after = milliseconds(10);
    const auto result = run(options);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), "no-progress");
  }
}

// H beyond the run's steps: one phase of all of them, whatever the algorithm.
TEST(Simulation, NoLocalPhaseGoesBeyondTheRun) {
  for (const char* algorithm : {"dpsgd", "ad-psgd", "push-sum"}) {
    NetOptions options = small_network("ring", 4, algorithm);
    options.train.train.local_steps = 1'000'000'000;
    const SimulationResult result = run_well(options);
    EXPECT_EQ(result.totals.node_steps, 4U * 20);
  }
}

// A message that a split holds up for a minute is not in the way of those that others send.
TEST(Simulation, WhatIsFarAwayDoesNotOccupyTheLink) {
  NetOptions options = small_network("ring", 8, "push-sum");
  options.network.splits = "0s-60s:2";
  options.network.retransmit = true;
  const double apart = run_well(options).measurements.back().consensus_distance;
  options.network.splits = "0s-60s:4000000000";
  const double alone = run_well(options).measurements.back().consensus_distance;
  EXPECT_LT(apart, 0.9 * alone);
}

// Where a push takes six local steps, what is not sent yet goes with the next one: no queue grows.
TEST(Simulation, PushSumSendsNoMoreThanLinksCarry) {
  for (const char* bandwidth : {"8kB/s", "uniform:2kB/s,20kB/s"}) {
    for (const double loss : {0.0, 0.01}) {
      NetOptions options = small_network_of_steps(1000, "exponential", 8, "push-sum");
      options.network.bandwidth = bandwidth;
      options.network.loss = loss;
      const SimulationResult result = run_well(options, 2);
      const Traffic& traffic = result.totals.traffic;
      EXPECT_LE(static_cast<double>(traffic.bytes_sent),
                8 * 20e3 * (result.totals.virtual_seconds + 1));
      // On its way: what each node's link works on, three messages, and as many at the receivers'.
      EXPECT_LE(traffic.messages - traffic.arrived - traffic.lost, 8U * 2 * 3) << bandwidth;
      EXPECT_GT(traffic.arrived, 400U);
      EXPECT_GT(*result.measurements.back().eval_accuracy, 0.9);
    }
  }
}

// Slow or lossy, pairs still average.
TEST(Simulation, AskersLearnHowLongRepliesTake) {
  NetOptions options = small_network("ring", 8, "ad-psgd");
  options.network.loss = 0.2;
  options.network.latency = "100ms";
  options.run.virtual_time = std::chrono::seconds(60);
  options.run.steps = 5000;
  options.evaluate.every = 5000;
  const SimulationResult result = run_well(options, 2);
  // Of 60 s, at most 0.8 s an exchange.
  EXPECT_GT(result.totals.traffic.messages, 4U * 75);
}

// One node of a pair is away most of the time; who comes back alone goes on training.
TEST(Simulation, WhoWasWaitingWhenItCrashedTrainsAgain) {
  NetOptions options = small_network("path", 2, "ad-psgd");
  options.nodes.crash_every = milliseconds(50);
  options.nodes.return_after = milliseconds(200);
  options.run.steps = 400;
  options.evaluate.every = 400;
  const SimulationResult result = run_well(options);
  // 800 local steps of 10 ms, by two nodes that are there a fifth of the time, and of that a tenth
  // lost to phases cut short.
  EXPECT_LT(result.totals.virtual_seconds, 40);
}

// Each node's first model has that distance from the common one: the mean of all is near it, and
// their distance from the mean is nearly as large.
TEST(Simulation, NodesMayBeginApart) {
  NetOptions options = small_network("ring", 16);
  const SimulationResult together = run_well(options);
  EXPECT_EQ(together.measurements.front().consensus_distance, 0);
  options.model.initial = "spread=2.5";
  const Experiment experiment = prepare(options).value();
  const auto common = experiment.initial.values();
  for (Node node = 0; node < 16; ++node) {
    const std::vector<float> model = experiment.initial_of(node);
    double squares = 0;
    for (std::size_t i = 0; i < model.size(); ++i) {
      squares += std::pow(static_cast<double>(model[i]) - static_cast<double>(common[i]), 2);
    }
    EXPECT_NEAR(std::sqrt(squares), 2.5, 1e-5) << node;
  }
  EXPECT_NE(experiment.initial_of(0), experiment.initial_of(1));
  const SimulationResult apart = run_well(options);
  EXPECT_NEAR(apart.measurements.front().consensus_distance, 2.5, 0.5);
  EXPECT_LT(apart.measurements.back().consensus_distance,
            apart.measurements.front().consensus_distance / 4);
  EXPECT_EQ(run_well(options, 3).trace, apart.trace);
  options.run.seed = 2;
  EXPECT_NE(prepare(options)->initial_of(0), experiment.initial_of(0));
}

// From so far apart, all come together and learn.
TEST_P(Simulations, LearnFromDifferentBeginnings) {
  NetOptions options = small_network_of_steps(240, GetParam().topology, 8, GetParam().algorithm);
  GetParam().world(options);
  options.algorithm.ratio = 0.5;  // choco: a hundredth of 39 parameters mixes too slowly
  options.model.initial = "spread=1";
  const SimulationResult result = run_well(options, 2);
  EXPECT_NEAR(result.measurements.front().consensus_distance, 1, 0.3);
  EXPECT_LT(result.measurements.back().consensus_distance, 0.5);
  EXPECT_GT(*result.measurements.back().eval_accuracy_mean_model, 0.9);
}

// Of a file without a test split every node keeps a fifth of its rows back, those that a device
// with data.hold-out = 0.2 keeps back of the same part.
TEST(Simulation, DataOfOnesOwnAreEvaluatedOnRowsHeldOut) {
  const starling::testing::TemporaryDirectory directory;
  const std::string path = (directory.path() / "rows.csv").string();
  std::ofstream file(path);
  file << "a,b,label\n";
  for (int row = 0; row < 100; ++row) file << row << "," << row % 7 << "," << row % 2 << "\n";
  file.close();
  NetOptions options = small_network("ring", 8);
  options.data.dataset = "csv:" + path;
  const Experiment experiment = prepare(options).value();
  ASSERT_TRUE(experiment.evaluation);
  std::set<std::uint32_t> rows;
  for (std::size_t i = 0; i < experiment.evaluation->size(); ++i) {
    rows.insert(experiment.evaluation->row(i));
  }
  EXPECT_EQ(rows.size(), 8U * 2);  // of 12 or 13
  data::PartitionSpec partition = data::PartitionSpec::parse("iid").value();
  partition.of = 8;
  for (Node node = 0; node < 8; ++node) {
    const data::DatasetView& part = experiment.parts[node];
    for (std::size_t i = 0; i < part.size(); ++i) EXPECT_TRUE(rows.insert(part.row(i)).second);
    partition.index = node + 1;
    const data::DatasetView device{
        data::load_part(data::DatasetSpec::parse(options.data.dataset).value(), partition).value()};
    const data::DatasetView trained_on = data::hold_out(device, 0.2).training;
    ASSERT_EQ(part.size(), trained_on.size());
    for (std::size_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part.features(i)[0], trained_on.features(i)[0]);
    }
  }
  EXPECT_EQ(rows.size(), 100U);
  EXPECT_TRUE(run_well(options).measurements.back().eval_accuracy);
  for (const auto& [dataset, hold_out] : {std::pair("none", 0.2), std::pair("auto", 0.0)}) {
    options.evaluate.dataset = dataset;
    options.evaluate.hold_out = hold_out;
    const Experiment without = prepare(options).value();
    EXPECT_FALSE(without.evaluation);
    EXPECT_EQ(without.parts[0].size(), 13U);
  }
}

// Two files of one's own, one to train on and one to evaluate on.
class TwoFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (directory_.path() / name).string();
    std::ofstream(path) << text;
    return "csv:" + path;
  }
  Result<Experiment> prepared(const std::string& evaluation) const {
    NetOptions options = small_network("ring", 4);
    options.data.dataset = train_;
    options.evaluate.dataset = write("test.csv", evaluation);
    return prepare(options);
  }
  std::string refusal(const std::string& evaluation) const {
    const auto experiment = prepared(evaluation);
    if (experiment) return "accepted";
    EXPECT_EQ(experiment.error().category(), ErrorCategory::kUsage);
    return experiment.error().message();
  }
  std::string name(const std::string& file) const {
    return "csv:" + (directory_.path() / file).string();
  }

  const starling::testing::TemporaryDirectory directory_;
  std::string train_ = write("train.csv",
                             "x,y,label\n1,10,plum\n2,20,apple\n3,30,pear\n4,40,plum\n"
                             "5,50,apple\n6,60,pear\n7,70,plum\n8,80,apple\n");
};

TEST_F(TwoFiles, ClassesAreThoseOfTheTrainingData) {
  const auto experiment = prepared("x,y,label\n1,10,plum\n2,20,apple\n");  // no pear
  ASSERT_TRUE(experiment) << experiment.error().message();
  const data::DatasetView& evaluation = *experiment->evaluation;
  EXPECT_EQ(evaluation.dataset->class_names(), (std::vector<std::string>{"apple", "pear", "plum"}));
  EXPECT_EQ(evaluation.label(0), 2);
  EXPECT_EQ(evaluation.label(1), 0);
  EXPECT_EQ(refusal("x,y,label\n1,10,plum\n2,20,quince\n3,30,apple\n"),
            "evaluate.dataset: the label 'quince' of " + name("test.csv") + " is no class of " +
                name("train.csv") + ", which are 'apple', 'pear', 'plum'");
}

TEST_F(TwoFiles, TextsAndNumbersAsClassesAreNotMixed) {
  EXPECT_EQ(refusal("x,y,label\n1,10,0\n2,20,1\n"),
            "evaluate.dataset: the labels of " + name("test.csv") +
                " are numbers, and the classes of " + name("train.csv") +
                " are texts: 'apple', 'pear', 'plum'");
  train_ = write("numbers.csv", "x,y,label\n1,10,0\n2,20,1\n3,30,0\n4,40,1\n");
  EXPECT_EQ(refusal("x,y,label\n1,10,plum\n2,20,apple\n"),
            "evaluate.dataset: the labels of " + name("test.csv") + " are texts, and those of " +
                name("numbers.csv") + " are numbers: write both alike");
}

TEST_F(TwoFiles, ColumnsAreMatchedByName) {
  const auto experiment = prepared("label,y,x\nplum,10,1\napple,20,2\npear,30,3\n");
  ASSERT_TRUE(experiment) << experiment.error().message();
  EXPECT_EQ(experiment->evaluation->features(0)[0], 1.0F);
  EXPECT_EQ(experiment->evaluation->features(0)[1], 10.0F);
  EXPECT_EQ(refusal("x,label\n1,plum\n"), "evaluate.dataset: the columns of " + name("test.csv") +
                                              " are not those of " + name("train.csv") +
                                              ": it has no 'y'");
  EXPECT_EQ(refusal("x,y,z,label\n1,10,5,plum\n"),
            "evaluate.dataset: the columns of " + name("test.csv") + " are not those of " +
                name("train.csv") + ": it has 'z', which " + name("train.csv") + " has not");
}

TEST(Simulation, BeginningsApartAreOfBuiltInModels) {
  NetOptions options = small_network("ring", 4);
  for (const char* text : {"spread", "spread=", "spread=-1", "spread=1e9", "spread=nan", "file"}) {
    options.model.initial = text;
    const auto experiment = prepare(options);
    ASSERT_FALSE(experiment) << text;
    EXPECT_NE(experiment.error().message().find("write spread=DISTANCE"), std::string::npos)
        << experiment.error().message();
  }
  options.model.kind = "external";
  options.model.initial = "spread=1";
  data::ReadableDatasets datasets;
  const auto refused = check(options, datasets);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("is for built-in models"), std::string::npos);
}

TEST(Simulation, RefusesWhatDoesNotFit) {
  const auto refused = [](const NetOptions& options) {
    const auto experiment = prepare(options);
    return experiment ? std::string("accepted") : std::string(experiment.error().code());
  };
  EXPECT_EQ(refused(small_network("rings", 4)), "topology-spec");
  EXPECT_EQ(refused(small_network("hypercube", 6)), "topology-impossible");
  EXPECT_EQ(refused(small_network("ring", 5, "ad-psgd")), "algorithm-topology");
  NetOptions options = small_network("ring", 4, "choco");
  options.network.loss = 0.1;
  EXPECT_EQ(refused(options), "algorithm-network");
  options = small_network("ring", 4);
  options.data.partition = "natural:column=writer";
  EXPECT_NE(refused(options), "accepted");
  options = small_network("ring", 4, "detag");
  EXPECT_EQ(refused(options), "accepted");
  options.train.train.optimizer = "adam";
  EXPECT_EQ(refused(options), "algorithm-options");
  options = small_network("ring", 601);
  EXPECT_EQ(refused(options), "partition-impossible");
  options = small_network("ring", 4);
  options.evaluate.dataset = "synthetic:features=13";
  EXPECT_EQ(refused(options), "data-mismatch");
}

}  // namespace
}  // namespace starling::gossip
