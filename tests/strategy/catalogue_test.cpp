// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/catalogue.h"

#include <gtest/gtest.h>

#include "tests/strategy/federation.h"

namespace starling::strategy {
namespace {

TEST(Catalogue, MakesBothHalvesOfEachStrategy) {
  const Catalogue& all = builtin_strategies();
  for (const std::string& name : kStrategies) {
    const StrategyOptions options{.name = name};
    ASSERT_TRUE(all.check(options, {}, 1)) << name;
    EXPECT_TRUE(all.make_server(options, {})) << name;
    EXPECT_TRUE(all.make_client(all.for_clients(options), {})) << name;
  }
  EXPECT_EQ(all.client_names(), (std::vector<std::string>{"diloco", "fedavg", "feddyn", "fednova",
                                                          "fedprox", "qfedavg", "scaffold"}));
}

TEST(Catalogue, EachKeyIsOfSomeStrategyAndASentenceSaysWhereItHasNoEffect) {
  const Catalogue& all = builtin_strategies();
  const StrategyOptions options{.mu = 0.25, .alpha = 0.75, .q = 3, .option = "I"};
  const ServerOptions server{
      .learning_rate = 0.5, .momentum = 0.5, .beta1 = 0.5, .beta2 = 0.5, .tau = 0.5};
  EXPECT_EQ(
      all.unused_settings(options, server),
      (std::vector<std::string>{
          "strategy.mu is used by fednova and fedprox only; strategy.name is fedavg: it has "
          "no effect",
          "strategy.alpha is used by feddyn only; strategy.name is fedavg: it has no effect",
          "strategy.q is used by qfedavg only; strategy.name is fedavg: it has no effect",
          "strategy.option is used by scaffold only; strategy.name is fedavg: it has no effect",
          "strategy.server-momentum is used by diloco and fedavgm only; strategy.name is "
          "fedavg: it has no effect",
          "strategy.beta1 is used by fedadam and fedyogi only; strategy.name is fedavg: it "
          "has no effect",
          "strategy.beta2 is used by fedadam and fedyogi only; strategy.name is fedavg: it "
          "has no effect",
          "strategy.tau is used by fedadagrad, fedadam and fedyogi only; strategy.name is "
          "fedavg: it has no effect"}));
  for (const std::string& name : kStrategies) {
    EXPECT_TRUE(all.unused_settings({.name = name}, {.learning_rate = 2}).empty()) << name;
  }
  EXPECT_TRUE(all.unused_settings({.name = "fedprox", .mu = 1}, {}).empty());
}

TEST(Catalogue, SuggestsANameForOneThatThereIsNot) {
  const auto result = builtin_strategies().check({.name = "fedpox"}, {}, 1);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), "unknown-strategy");
  EXPECT_NE(result.error().message().find("fedprox"), std::string::npos);
  EXPECT_EQ(builtin_strategies().make_client({.name = "fedadam"}, {}).error().code(),
            "unknown-strategy")
      << "its client half is fedavg's";
}

TEST(Catalogue, RefusesOptimizersThatAStrategyIsNotDefinedFor) {
  const auto accepts = [](const StrategyOptions& options) {
    std::string accepted;
    for (const std::string_view optimizer : train::kOptimizers) {
      const auto result =
          builtin_strategies().check(options, {.optimizer = std::string(optimizer)}, 1);
      if (result) {
        accepted += (accepted.empty() ? "" : ",") + std::string(optimizer);
      } else {
        EXPECT_EQ(result.error().code(), "setting-invalid");
      }
    }
    return accepted;
  };
  EXPECT_EQ(accepts({.name = "scaffold"}), "sgd");
  EXPECT_EQ(accepts({.name = "qfedavg"}), "sgd");
  EXPECT_EQ(accepts({.name = "fednova"}), "sgd,momentum");
  EXPECT_EQ(accepts({.name = "fednova", .mu = 0}), "sgd,momentum");
  EXPECT_EQ(accepts({.name = "fednova", .mu = 0.1}), "sgd");
  for (const char* name :
       {"fedavg", "fedprox", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "feddyn", "diloco"}) {
    EXPECT_EQ(accepts({.name = name}), "sgd,momentum,nesterov,adam,adamw") << name;
  }
}

TEST(Catalogue, RefusesLearningRatesThatAStrategyIsNotDefinedFor) {
  const auto refusal = [](const StrategyOptions& options, const train::TrainOptions& training) {
    const auto result = builtin_strategies().check(options, training, 20);
    return result ? std::string() : result.error().message();
  };
  const train::TrainOptions zero{.learning_rate = 0};
  const train::TrainOptions vanishing{.schedule = "step", .gamma = 0};
  EXPECT_EQ(refusal({.name = "scaffold"}, zero),
            "strategy.name = 'scaffold' divides by the learning rate, which is 0 in round 1 of 20: "
            "raise train.learning-rate");
  EXPECT_EQ(refusal({.name = "qfedavg"}, vanishing),
            "strategy.name = 'qfedavg' divides by the learning rate, which is 0 in round 20 of 20: "
            "raise train.learning-rate or train.gamma");
  EXPECT_NE(refusal({.name = "scaffold"}, vanishing), "");
  EXPECT_EQ(refusal({.name = "scaffold", .option = "I"}, zero), "");
  EXPECT_EQ(refusal({.name = "fedavg"}, zero), "");
  EXPECT_EQ(refusal({.name = "qfedavg"}, {.schedule = "cosine", .warmup_rounds = 3}), "");

  EXPECT_EQ(refusal({.name = "fednova", .mu = 5}, {.learning_rate = 0.2}), "");
  EXPECT_EQ(refusal({.name = "fednova", .mu = 5}, {.learning_rate = 0.3, .warmup_rounds = 2}),
            "strategy.name = 'fednova' needs strategy.mu x learning rate of at most 1; they are 5 "
            "and 0.3 in round 3");
}

TEST(Catalogue, ClientsAreToldWhatTheirHalfReads) {
  const StrategyOptions all{.mu = 0.25, .alpha = 0.75, .q = 3, .option = "I"};
  const auto told = [&](const char* name) {
    StrategyOptions options = all;
    options.name = name;
    return builtin_strategies().for_clients(options);
  };
  EXPECT_EQ(told("fedadam"), (StrategyOptions{.name = "fedavg"}));
  EXPECT_EQ(told("fedprox"), (StrategyOptions{.name = "fedprox", .mu = 0.25}));
  EXPECT_EQ(told("fednova"), (StrategyOptions{.name = "fednova", .mu = 0.25}));
  EXPECT_EQ(told("scaffold"), (StrategyOptions{.name = "scaffold", .option = "I"}));
  EXPECT_EQ(told("qfedavg"), (StrategyOptions{.name = "qfedavg", .q = 3}));
  EXPECT_EQ(told("feddyn"), (StrategyOptions{.name = "feddyn", .alpha = 0.75}));
  EXPECT_EQ(told("diloco"), (StrategyOptions{.name = "diloco"}));
}

TEST(Catalogue, DefaultsAreThoseOfTheOptionsText) {
  // One client whose difference is 1: the first round shows the server's learning rate.
  const auto first_step = [](const std::string& name) {
    Federation<double> federation({.options = {.name = name}, .sgd = {.rate = 1}},
                                  {{.a = {1}, .b = {1}}});
    federation.rounds(1);
    return federation.x[0];
  };
  for (const char* name : {"fedavg", "fedavgm", "fednova", "scaffold"}) {
    EXPECT_EQ(first_step(name), 1) << name;
  }
  EXPECT_NEAR(first_step("fedadagrad"), 0.1, 1e-3);
  EXPECT_NEAR(first_step("fedadam"), 0.1 * 0.1 / (0.1 + 1e-3), 1e-4);
  EXPECT_NEAR(first_step("diloco"), 0.7 * 1.9, 1e-12);
}

}  // namespace
}  // namespace starling::strategy
