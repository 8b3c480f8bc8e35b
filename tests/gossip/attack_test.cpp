// SPDX-License-Identifier: Apache-2.0
// Simulated nodes that lie, and what robust rules make of them.
#include "gossip/simulation/attack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/gossip/simulation_cases.h"

namespace starling::gossip {
namespace {

using ::testing::HasSubstr;
using testing::run;
using testing::run_well;
using testing::small_network;

NetOptions attacked(const std::string& kind, const std::string& topology = "complete",
                    const std::string& rule = "off") {
  NetOptions options = small_network(topology, 12);
  options.run.steps = 100;
  options.attack.kind = kind;
  options.robust.rule = rule;
  return options;
}

// All columns alike: what is forged from honest models of these values.
float forged(const NetOptions& options, const std::vector<float>& values) {
  const Experiment experiment = prepare(options).value();
  std::vector<std::vector<float>> models;
  for (const float value : values) models.emplace_back(experiment.parameters(), value);
  const std::vector<std::span<const float>> honest(models.begin(), models.end());
  Attack attack(experiment);
  ComputePool pool(1);
  attack.forge(honest, pool);
  const std::span<const float> first = attack.message().first;
  EXPECT_EQ(first.size(), experiment.parameters());
  EXPECT_EQ(first.front(), first.back());
  return first.front();
}

TEST(Attack, ForgesFromMeanAndDeviationOfTheHonest) {
  const std::vector<float> values = {1, 3, 3, 1};  // mean 2, deviation 1
  EXPECT_EQ(forged(attacked("sign-flip"), values), -2);
  EXPECT_EQ(forged(attacked("alie"), values), 2 - 1.5F);
  EXPECT_EQ(forged(attacked("outlier"), values), 2 + 200);
  NetOptions options = attacked("alie");
  options.attack.scale = 0.5;
  EXPECT_EQ(forged(options, values), 1.5F);
}

TEST(Attack, LiarsAreDrawnFromTheSeedAndNotMeasured) {
  NetOptions options = attacked("sign-flip");
  options.attack.nodes = 3;
  const Experiment experiment = prepare(options).value();
  const Attack attack(experiment), again(experiment);
  Node liars = 0;
  for (Node node = 0; node < 12; ++node) {
    EXPECT_EQ(attack.is_liar(node), again.is_liar(node));
    liars += attack.is_liar(node) ? 1 : 0;
  }
  EXPECT_EQ(liars, 3U);
  EXPECT_EQ(run_well(options).measurements.back().nodes_up, 9U);
  const Attack nobody(prepare(small_network("ring", 4)).value());
  EXPECT_FALSE(nobody.is_on());
  EXPECT_FALSE(nobody.is_liar(0));
}

TEST(Attack, WhatCannotBeAttackedIsRefused) {
  NetOptions options = attacked("alie");
  options.algorithm.name = "sgp";
  EXPECT_THAT(run(options).error().message(), HasSubstr("dpsgd, epidemic, qg-dsgdm, diloco"));
  options = attacked("alie");
  options.attack.nodes = 12;
  EXPECT_THAT(run(options).error().message(), HasSubstr("leaves none of the 12 nodes honest"));
}

TEST(Attack, TheSameRunOnAnyNumberOfThreads) {
  for (const std::string rule : {"off", "clip", "remove"}) {
    const NetOptions options = attacked("alie", "torus:3x4", rule);
    EXPECT_EQ(run_well(options, 1).trace, run_well(options, 3).trace) << rule;
  }
}

double accuracy(const NetOptions& options) {
  return *run_well(options).measurements.back().eval_accuracy;
}

TEST(Attack, OnACompleteGraphEachRuleKeepsHonestNodesWithinHalfAPoint) {
  const double calm = accuracy(attacked("none"));
  for (const std::string rule : {"clip", "remove"}) {
    for (const std::string kind : {"sign-flip", "alie", "outlier"}) {
      EXPECT_GT(accuracy(attacked(kind, "complete", rule)), calm - 0.005) << rule << ' ' << kind;
    }
  }
}

// Infinite values: a run without a rule ends with them, with a rule they are not noticed.
TEST(Attack, ValuesThatAreNoNumbersAreHarmlessUnderARule) {
  NetOptions options = attacked("outlier");
  options.attack.scale = 1e30;
  for (const double scale : {1e30, 1e10}) {
    for (const std::string rule : {"clip", "remove"}) {
      options.attack.scale = scale;
      options.robust.rule = rule;
      EXPECT_GT(accuracy(options), 0.85) << rule << scale;
    }
  }
}

}  // namespace
}  // namespace starling::gossip
