// SPDX-License-Identifier: Apache-2.0
#include "core/report/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::report {
namespace {

using ::testing::ElementsAre;

report::Run run_with(std::vector<std::pair<std::string, std::string>> settings,
                     const std::vector<double>& accuracies = {}) {
  report::Run run;
  run.directory = "runs/a";
  run.nodes = 4;
  run.settings = std::move(settings);
  for (const double accuracy : accuracies) {
    Evaluation& evaluation = run.evaluations.emplace_back();
    const auto index = static_cast<double>(run.evaluations.size());
    evaluation.at(Measure::kStep) = 10 * index;
    evaluation.at(Measure::kVirtualSeconds) = index;
    evaluation.at(Measure::kBytesSent) = 4000 * index;
    evaluation.at(Measure::kEvalAccuracy) = accuracy;
  }
  return run;
}

TEST(DistinguishingNames, AreWhatDiffers) {
  const std::vector<report::Run> runs = {
      run_with({{"run.seed", "1"}, {"topology.spec", "ring"}, {"train.local-steps", "1"}}),
      run_with({{"run.seed", "1"}, {"topology.spec", "torus:4x4"}, {"train.local-steps", "8"}})};
  EXPECT_THAT(distinguishing_names(runs),
              ElementsAre("ring, local-steps 1", "torus:4x4, local-steps 8"));
}

TEST(DistinguishingNames, SayWhichOfTwoSettingsOfOneNameIsMeant) {
  const std::vector<report::Run> runs = {run_with({{"topology.nodes", "4"},
                                                   {"attack.nodes", "1"},
                                                   {"algorithm.momentum", "0.5"},
                                                   {"train.momentum", "0.9"}}),
                                         run_with({{"topology.nodes", "6"},
                                                   {"attack.nodes", "2"},
                                                   {"algorithm.momentum", "0.6"},
                                                   {"train.momentum", "0.8"}})};
  const std::vector<std::string> keys = differences(runs).keys;
  EXPECT_EQ(words_of(keys, differences(runs).values[0]),
            "4 nodes, attack.nodes 1, algorithm.momentum 0.5, train.momentum 0.9");
  EXPECT_THAT(column_titles(keys), ElementsAre("topology nodes", "attack nodes",
                                               "algorithm momentum", "train momentum"));
  EXPECT_THAT(column_titles(std::vector<std::string>{"algorithm.name", "train.learning-rate"}),
              ElementsAre("algorithm", "learning rate"));
}

TEST(DistinguishingNames, HavePathsWithoutTheDirectoryThatAllShare) {
  const auto of = [](const std::vector<std::string>& data) {
    std::vector<report::Run> runs;
    for (const std::string& value : data) runs.push_back(run_with({{"data.dataset", value}}));
    return distinguishing_names(runs);
  };
  EXPECT_THAT(of({"csv:/home/me/rows/a/x.csv", "csv:/home/me/rows/a/y.csv"}),
              ElementsAre("dataset csv:x.csv", "dataset csv:y.csv"));
  EXPECT_THAT(of({"csv:/home/me/a/x.csv", "csv:/home/me/ab/x.csv", "fashion-mnist"}),
              ElementsAre("dataset csv:a/x.csv", "dataset csv:ab/x.csv", "dataset fashion-mnist"));
  EXPECT_THAT(of({"csv:/me/rows", "idx:/me/rows"}),
              ElementsAre("dataset csv:rows", "dataset idx:rows"));
  EXPECT_THAT(of({"csv:me/a.csv", "csv:a.csv"}),
              ElementsAre("dataset csv:me/a.csv", "dataset csv:a.csv"))
      << "without their directories they would be one";
  EXPECT_THAT(of({"1Gbit/s", "none"}), ElementsAre("dataset 1Gbit/s", "dataset none"));
  EXPECT_THAT(of({"csv:/a.csv", "csv:/home/a.csv"}),
              ElementsAre("dataset csv:a.csv", "dataset csv:home/a.csv"));
}

TEST(DistinguishingNames, DifferAlways) {
  std::vector<report::Run> runs(3, run_with({{"run.seed", "1"}}));
  EXPECT_THAT(distinguishing_names(runs), ElementsAre("a (a)", "a (a) #2", "a (a) #3"));
  runs[1].directory = "runs/b/";
  EXPECT_THAT(distinguishing_names(std::span(runs).first(2)), ElementsAre("a", "b"));
}

TEST(DistinguishingNames, WhatOnlyALaunchedNetworkHasIsNoDifferenceToASimulatedOne) {
  std::vector<report::Run> runs = {
      run_with({{"topology.spec", "ring"}}),
      run_with({{"topology.spec", "ring"}, {"launch.proxy", "false"}, {"chaos.count", "0"}}),
      run_with({{"topology.spec", "star"}, {"launch.proxy", "false"}, {"chaos.count", "0"}})};
  runs[1].directory = "runs/b";
  EXPECT_THAT(distinguishing_names(runs), ElementsAre("ring (a)", "ring (b)", "star"));
  EXPECT_THAT(distinguishing_names(std::span(runs).first(2)), ElementsAre("a", "b"));
  runs[1].settings.back().second = "20";
  EXPECT_THAT(distinguishing_names(std::span(runs).subspan(1)),
              ElementsAre("ring, count 20", "star, count 0"));
}

TEST(DistinguishingNames, FederatedRunsHaveTheirJobs) {
  report::Run federated;
  federated.kind = RunKind::kFederated;
  federated.name = "fedavg";
  const std::vector<report::Run> runs = {run_with({{"topology.spec", "ring"}}),
                                         run_with({{"topology.spec", "star"}}), federated};
  EXPECT_THAT(distinguishing_names(runs), ElementsAre("ring", "star", "fedavg"));
}

TEST(DistinguishingNames, FederatedRunsOfOneJobHaveWhatDiffers) {
  std::vector<report::Run> runs(2);
  for (report::Run& run : runs) {
    run.kind = RunKind::kFederated;
    run.name = "fashion";
    run.settings = {
        {"name", "fashion"}, {"strategy.name", "fedavg"}, {"aggregation.norm-max", "1"}};
  }
  runs[1].settings[1].second = "fedprox";
  runs[1].settings[2].second = "5";
  EXPECT_THAT(distinguishing_names(runs), ElementsAre("fedavg, norm-max 1", "fedprox, norm-max 5"));
  for (report::Run& run : runs) {  // norm-max follows from the strategy
    run.asked = {{"name", "fashion"},
                 {"strategy.name", run.settings[1].second},
                 {"aggregation.norm-max", "auto"},
                 {"clients", "10"}};
  }
  EXPECT_THAT(distinguishing_names(runs), ElementsAre("fedavg", "fedprox"));
  runs[0].asked.back().second = "100";
  EXPECT_THAT(distinguishing_names(runs),
              ElementsAre("fedavg, 100 clients", "fedprox, 10 clients"));
}

TEST(DistinguishingNames, OfASimulationWithoutEvaluationDataIsNotNone) {
  std::vector<report::Run> runs(2);
  for (report::Run& run : runs) run.kind = RunKind::kFederated;
  runs[0].settings = {{"evaluate.dataset", ""}};
  runs[1].settings = {{"evaluate.dataset", "none"}};
  EXPECT_THAT(distinguishing_names(runs), ElementsAre("dataset not set", "dataset none"));
}

TEST(DistinguishingNames, HaveAllThatDiffersWhereThreeSettingsAreNotEnough) {
  std::vector<report::Run> runs;
  for (const char* last : {"1", "2"}) {
    for (const char* others : {"3", "4"}) {
      runs.push_back(run_with({{"a", others}, {"b", others}, {"c", others}, {"d", last}}));
    }
  }
  EXPECT_THAT(distinguishing_names(runs), ElementsAre("a 3, b 3, c 3, d 1", "a 4, b 4, c 4, d 1",
                                                      "a 3, b 3, c 3, d 2", "a 4, b 4, c 4, d 2"));
}

TEST(DistinguishingNames, LeaveOutWhatTellsNothingMore) {
  std::vector<report::Run> runs;
  for (const char* i : {"1", "2", "3"}) {
    runs.push_back(run_with(
        {{"a", i[0] == '3' ? "2" : "1"}, {"b", "1"}, {"c", "1"}, {"d", i}, {"e", i}, {"f", i}}));
  }
  runs.push_back(
      run_with({{"a", "1"}, {"b", "2"}, {"c", "2"}, {"d", "1"}, {"e", "1"}, {"f", "1"}}));
  EXPECT_THAT(distinguishing_names(runs), ElementsAre("a 1, b 1, c 1, d 1", "a 1, b 1, c 1, d 2",
                                                      "a 2, b 1, c 1, d 3", "a 1, b 2, c 2, d 1"));
}

TEST(CommonTarget, IsTheHighestRoundNumberThatAllReached) {
  const auto target = [](std::vector<double> first, std::vector<double> second) {
    return common_target(std::vector{run_with({}, first), run_with({}, second)});
  };
  EXPECT_EQ(target({0.2, 0.873}, {0.95}), 0.85);
  EXPECT_EQ(target({0.9}, {0.9, 0.1}), 0.9);
  EXPECT_EQ(target({0.034}, {0.5}), 0.03);
  EXPECT_EQ(target({0.5}, {}), 0.5);  // nothing was evaluated there
  EXPECT_EQ(target({}, {}), std::nullopt);
  EXPECT_EQ(target({0.001}, {0.5}), std::nullopt);
}

TEST(CostOf, IsThatOfTheFirstEvaluationAtTheTarget) {
  const report::Run run = run_with({}, {0.1, 0.5, kNotMeasured, 0.4, 0.9});
  EXPECT_EQ(cost_of(run, 0.5)->step, 20);
  EXPECT_EQ(cost_of(run, 0.51)->step, 50);
  EXPECT_EQ(cost_of(run, 0.51)->bytes, 20000);
  EXPECT_FALSE(cost_of(run, 0.95));
}

TEST(Compare, HasARowForEachRun) {
  std::vector<report::Run> runs = {run_with({{"topology.spec", "ring"}}, {0.1, 0.61}),
                                   run_with({{"topology.spec", "star"}}, {0.7, 0.65})};
  const auto names = distinguishing_names(runs);
  const Comparison comparison = compare(runs, names);
  EXPECT_EQ(comparison.target, 0.6);
  EXPECT_EQ(comparison.columns[5].title, "bytes a node to 60 %");
  EXPECT_THAT(comparison.rows,
              ElementsAre(ElementsAre("ring", "0.6100", "0.6100", "20", "2 s", "2 kB"),
                          ElementsAre("star", "0.6500", "0.7000", "10", "1 s", "1 kB")));
  runs[0].kind = RunKind::kFederated;
  runs[0].nodes.reset();
  const Comparison mixed = compare(runs, names);
  EXPECT_EQ(mixed.columns[3].title, "steps or rounds to 60 %");
  EXPECT_EQ(mixed.columns[5].title, "bytes to 60 %");
}

TEST(Compare, HasOnlyColumnsInWhichARunHasAValue) {
  std::vector<report::Run> runs = {run_with({}, {0.1, 0.61}), run_with({}, {0.7, 0.65})};
  for (report::Run& run : runs) {
    for (Evaluation& evaluation : run.evaluations) {
      evaluation.at(Measure::kVirtualSeconds) = kNotMeasured;
    }
  }
  runs[1].messages = 80;
  const Comparison comparison = compare(runs, std::vector<std::string>{"a", "b"});
  std::vector<std::string> titles;
  for (const ComparisonColumn& column : comparison.columns) titles.push_back(column.title);
  EXPECT_THAT(titles, ElementsAre("run", "final accuracy", "best accuracy", "steps to 60 %",
                                  "bytes a node to 60 %", "messages"));
  EXPECT_THAT(comparison.rows[0], ElementsAre("a", "0.6100", "0.6100", "20", "2 kB", "–"));
}

}  // namespace
}  // namespace starling::report
