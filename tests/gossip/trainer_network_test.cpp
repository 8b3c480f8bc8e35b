// SPDX-License-Identifier: Apache-2.0
// Networks whose nodes train with a custom trainer, tests/client/fake_trainer.py: what a local
// phase does, whole simulations against the recurrence written out, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <numeric>

#include "gossip/simulation/simulation.h"
#include "gossip/training/network_trainers.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using ::testing::HasSubstr;

class Lines final : public Log {
 public:
  void write(LogLevel, std::string_view line) override {
    const std::lock_guard lock(mutex_);
    text += std::string(line) + "\n";
  }
  std::string text;

 private:
  std::mutex mutex_;
};

constexpr std::size_t kFeatures = 3;
constexpr int kRows = 40;
using Model = std::array<double, 1 + kFeatures>;  // b, w

// As the script makes them.
Model gradient_of(const std::string& client, const Model& model, int from, int count) {
  int key = 0;
  for (const char c : client) key += c;
  Model sum{};
  for (int k = 0; k < count; ++k) {
    const int i = (from + k) % kRows;
    std::array<double, kFeatures> x{};
    for (int j = 0; j < static_cast<int>(kFeatures); ++j) {
      x[static_cast<std::size_t>(j)] = (i * 7 + j * 3 + key) % 11 / 10.0 - 0.5;
    }
    double error = model[0] - (2 * x[0] - x[kFeatures - 1] + 0.5);
    for (std::size_t j = 0; j < kFeatures; ++j) error += model[1 + j] * x[j];
    sum[0] += error / count;
    for (std::size_t j = 0; j < kFeatures; ++j) sum[1 + j] += error * x[j] / count;
  }
  return sum;
}

class TrainerNetwork : public ::testing::Test {
 protected:
  TrainerNetwork() {
    options.topology.spec = "ring";
    options.topology.nodes = 5;
    options.model.kind = "external";
    options.run.steps = 12;
    options.evaluate.every = 4;
    options.train.train.local_steps = 2;
    options.train.train.batch_size = 8;
    options.train.train.learning_rate = 0.3;
  }

  client::TrainerOptions trainer(const std::string& mode) const {
    const auto script = testing::source_root() / "tests" / "client" / "fake_trainer.py";
    return {.command = {"python3", "-B", script.string(), mode, directory.path().string()}};
  }
  Result<std::shared_ptr<const NetworkTrainers>> start(const std::string& mode,
                                                       unsigned workers = 1) {
    return NetworkTrainers::start(options, trainer(mode), workers, log);
  }
  Result<SimulationResult> simulate_with(const std::string& mode, unsigned workers = 1) {
    STARLING_ASSIGN(auto trainers, start(mode, workers));
    STARLING_ASSIGN(const Experiment experiment, prepare(options, std::move(trainers)));
    const SystemClock clock;
    return simulate(experiment, workers, clock, {});
  }
  std::string refusal(const std::string& mode) {
    const auto started = start(mode);
    return started ? "nothing was refused" : started.error().message();
  }

  const testing::TemporaryDirectory directory;
  NetOptions options;
  Lines log;
};

// --- a local phase ------------------------------------------------------------------------------

TEST_F(TrainerNetwork, PhasesAreTheStepsOfTheOptimizerOnTheTrainersGradients) {
  options.train.train.optimizer = "momentum";
  options.train.train.momentum = 0.5;
  options.train.train.weight_decay = 0.1;
  const auto trainers = start("without-buffers");
  ASSERT_TRUE(trainers) << trainers.error().message();
  const auto trainings = (*trainers)->trainings(options);
  std::vector<float> x = {0.5F, 0.25F, 0.25F, 0.25F};
  Model expected{0.5, 0.25, 0.25, 0.25};
  Model velocity{};
  const auto step = [&](int batch) {
    const Model g = gradient_of("node-0003", expected, batch * 8, 8);
    for (std::size_t i = 0; i < g.size(); ++i) {
      velocity[i] = 0.5 * velocity[i] + g[i] + 0.1 * expected[i];
      expected[i] -= 0.3 * velocity[i];
    }
  };
  // Two phases: the optimizer goes on, batches are counted in each.
  for (const std::uint64_t step_before : {0U, 3U}) {
    const auto training = trainings->begin(2, 0, step_before);
    ASSERT_TRUE(training->steps(x, 0.3, 2));
    ASSERT_TRUE(training->step(x, 0.3));
    for (int batch = 0; batch < 3; ++batch) step(batch);
  }
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], 1e-6);
  trainings->forget_momentum(2);
  velocity = {};
  ASSERT_TRUE(trainings->begin(2, 0, 6)->step(x, 0.3));
  step(0);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], 1e-6);
  std::vector<float> gradient(x.size());
  ASSERT_TRUE(trainings->begin(2, 0, 7)->gradient(x, gradient));
  const Model g = gradient_of("node-0003", expected, 0, 8);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(gradient[i], g[i] + 0.1 * expected[i], 1e-6);
  }
}

TEST_F(TrainerNetwork, AFailedPhaseLeavesTheModelAsItWas) {
  const auto trainers = start("error");
  ASSERT_TRUE(trainers) << trainers.error().message();
  const auto trainings = (*trainers)->trainings(options);
  const std::vector<float> before = {1, 2, 3, 4, 5};
  std::vector<float> x = before;
  const auto failed = trainings->begin(0, 0, 0)->steps(x, 0.1, 2);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "node-0001: the trainer says: cam-7 has no rows");
  EXPECT_EQ(x, before);
}

// --- networks -----------------------------------------------------------------------------------

// x_i <- mean of x_j - rate * g_j(x_j) over i and its two neighbours, H = 2, and of the counter the
// same mean.
TEST_F(TrainerNetwork, MixesWhatTheTrainersMadeAsTheRecurrenceDoes) {
  const auto result = simulate_with("honest");
  ASSERT_TRUE(result) << result.error().message();
  std::vector<Model> models(5, Model{0.5, 0.25, 0.25, 0.25});
  for (int exchange = 0; exchange < 6; ++exchange) {
    std::vector<Model> trained = models;
    for (std::size_t node = 0; node < 5; ++node) {
      for (int batch = 0; batch < 2; ++batch) {
        const Model g =
            gradient_of(node_name(static_cast<Node>(node)), trained[node], batch * 8, 8);
        for (std::size_t i = 0; i < g.size(); ++i) trained[node][i] -= 0.3 * g[i];
      }
    }
    for (std::size_t node = 0; node < 5; ++node) {
      for (std::size_t i = 0; i < models[node].size(); ++i) {
        models[node][i] =
            (trained[(node + 4) % 5][i] + trained[node][i] + trained[(node + 1) % 5][i]) / 3;
      }
    }
  }
  Model mean{};
  for (const Model& model : models) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += model[i] / 5;
  }
  const auto& values = result->mean_model.values();
  ASSERT_EQ(values.size(), 5U);
  EXPECT_NEAR(values[0], mean[0], 1e-5);
  EXPECT_EQ(values[1], 7) << "the counter";
  for (std::size_t i = 1; i < mean.size(); ++i) EXPECT_NEAR(values[1 + i], mean[i], 1e-5);
  const Measurement& last = result->measurements.back();
  EXPECT_EQ(last.eval_accuracy, 0.75);
  EXPECT_LT(*last.eval_loss, *result->measurements.front().eval_loss);
  EXPECT_TRUE(last.eval_loss_mean_model);
}

TEST_F(TrainerNetwork, TheSameForAnyNumberOfWorkersAndAlgorithm) {
  for (const char* algorithm : {"dpsgd", "gradient-tracking", "qg-dsgdm", "detag", "choco", "sgp",
                                "all-reduce", "diloco", "push-sum"}) {
    options.algorithm.name = algorithm;
    options.algorithm.gossip_rounds = 1;  // detag's phases, of as many exchanges
    const auto one = simulate_with("without-buffers");
    const auto three = simulate_with("without-buffers", 3);
    ASSERT_TRUE(one && three) << algorithm << ": " << (one ? three : one).error().message();
    EXPECT_EQ(one->models.hex(), three->models.hex()) << algorithm;
    EXPECT_EQ(one->trace.hex(), three->trace.hex()) << algorithm;
    EXPECT_LT(*one->measurements.back().train_loss, *one->measurements[1].train_loss) << algorithm;
  }
}

TEST_F(TrainerNetwork, NodesThatComeAndGoTrainToo) {
  options.nodes.crash_every = std::chrono::milliseconds(50);
  options.nodes.return_after = std::chrono::milliseconds(30);
  const auto result = simulate_with("without-buffers", 2);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->totals.step, 12U);
}

TEST_F(TrainerNetwork, ATrainerThatDiesOnceCostsNothing) {
  const auto disturbed = simulate_with("dies");  // first: it dies once in its directory
  const auto undisturbed = simulate_with("honest");
  ASSERT_TRUE(undisturbed && disturbed) << disturbed.error().message();
  EXPECT_EQ(disturbed->models.hex(), undisturbed->models.hex());
  EXPECT_THAT(log.text, HasSubstr("node-0001: the trainer ended with exit code 3"));
}

// Part of its answer may be there already.
TEST_F(TrainerNetwork, AnAnswerThatIsRefusedLeavesNoTrace) {
  const auto disturbed = simulate_with("fit:no-result");
  const auto undisturbed = simulate_with("honest");
  ASSERT_TRUE(undisturbed && disturbed) << disturbed.error().message();
  EXPECT_EQ(disturbed->models.hex(), undisturbed->models.hex());
  EXPECT_THAT(log.text, HasSubstr("node-0001: the trainer answered 'fit' without a result"));
}

TEST_F(TrainerNetwork, WhatCannotPassEndsTheRun) {
  EXPECT_EQ(simulate_with("fit:nan-result").error().code(), "diverged");
  EXPECT_EQ(simulate_with("one-step-more").error().message(),
            "node-0001: the trainer took 3 steps in a local phase of 2; let it take as many as "
            "train.local-steps says");
}

TEST_F(TrainerNetwork, OneThatKeepsDyingEndsTheRunForAll) {
  options.topology.nodes = 40;
  const auto failed = simulate_with("fit:dies-always", 2);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), "trainer-died");
  EXPECT_LE(std::ranges::count(log.text, '\n'), 40) << "two nodes, three attempts each";
}

TEST_F(TrainerNetwork, NoEvaluationWhereItIsNotWantedOrFails) {
  options.evaluate.dataset = "none";
  auto result = simulate_with("evaluate:error");
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_FALSE(result->measurements.back().eval_loss);
  EXPECT_EQ(log.text, "");
  options.evaluate.dataset = "auto";
  result = simulate_with("evaluate:error");
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_FALSE(result->measurements.back().eval_loss);
  EXPECT_FALSE(result->measurements.back().eval_loss_mean_model);
  EXPECT_THAT(log.text,
              HasSubstr("the model of node-0002 is not evaluated: the trainer says: cam-7 has no"));
}

TEST_F(TrainerNetwork, ItsWordEndsARunThatItRefuses) {
  const auto refused = simulate_with("error");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("the trainer says: cam-7 has no rows"));
}

// --- what is refused ----------------------------------------------------------------------------

TEST_F(TrainerNetwork, AlgorithmsAreHeldAgainstWhatTheTrainerOffers) {
  options.algorithm.name = "gradient-tracking";
  EXPECT_EQ(refusal("honest"),
            "gradient-tracking would change the model's buffers, such as counter, as if they were "
            "trained; use one of dpsgd, epidemic, relaysgd, all-reduce");
  options.algorithm.name = "detag";
  EXPECT_THAT(refusal("honest"), HasSubstr("would change the model's buffers"));
  options.algorithm.name = "sgp";
  EXPECT_THAT(refusal("honest"), HasSubstr("sgp would change the model's buffers"));
  options.algorithm = {.name = "dpsgd", .order = "combine-while-adapt"};
  EXPECT_THAT(refusal("honest"), HasSubstr("dpsgd would change the model's buffers"));
  options.algorithm = {.name = "dpsgd"};
  options.train.train.optimizer = "adam";
  EXPECT_EQ(refusal("fit-only"),
            "an optimizer that goes on from one local phase to the next takes gradients, and the "
            "trainer 'fake.py' does not offer 'gradient'; set train.optimizer = \"sgd\" (what "
            "the trainer uses itself starts again with each)");
  options.train.train.optimizer = "sgd";
  options.model.layout = std::string(64, '0');
  EXPECT_THAT(refusal("honest"), HasSubstr("other names, shapes, roles or rules of its tensors"));
  options.model = {};
  EXPECT_THAT(refusal("honest"), HasSubstr("this run trains a built-in model"));
}

TEST_F(TrainerNetwork, WhatOnlyDataCouldSayIsRefused) {
  options.topology.spec = "d-cliques";
  EXPECT_THAT(simulate_with("honest").error().message(), HasSubstr("d-cliques needs every node's"));
  options.topology.spec = "ring";
  options.evaluate.dataset = "csv:/rows.csv";
  EXPECT_THAT(simulate_with("honest").error().message(),
              HasSubstr("the trainer evaluates on the rows that each node holds out"));
}

}  // namespace
}  // namespace starling::gossip
