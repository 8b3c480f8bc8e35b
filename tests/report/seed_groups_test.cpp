// SPDX-License-Identifier: Apache-2.0
#include "core/report/seed_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/report/run_charts.h"
#include "tests/report/run_samples.h"

namespace starling::report {
namespace {

using ::testing::ElementsAre;
using testing::sample_run;

Run run_of(const char* seed, const char* topology, double accuracy) {
  return sample_run({{"seed", seed}, {"topology.spec", topology}}, accuracy);
}

TEST(SeedGroups, AreOfRunsThatDifferOnlyInTheSeed) {
  const std::vector runs = {run_of("1", "ring", 0.5), run_of("1", "star", 0.5),
                            run_of("2", "ring", 0.7), run_of("2", "star", 0.5),
                            run_of("3", "ring", 0.5)};
  EXPECT_THAT(group_by_seed(runs), ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
}

TEST(SeedGroups, TheSameSeedTwiceIsAnotherRun) {
  std::vector runs = {run_of("1", "ring", 0.5), run_of("2", "ring", 0.5), run_of("1", "ring", 0.6)};
  EXPECT_THAT(group_by_seed(runs), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  for (report::Run& run : runs) run.settings.erase(run.settings.begin());
  EXPECT_EQ(group_by_seed(runs).size(), 3U) << "nothing says that they differ in a seed";
  runs[0].kind = RunKind::kFederated;
  EXPECT_EQ(group_by_seed(std::vector{runs[0], run_of("1", "ring", 0.5)}).size(), 2U);
}

TEST(SeedGroups, HaveTheMeanAndTheEndsOfEachMeasure) {
  const std::vector runs = {run_of("1", "ring", 0.5), run_of("2", "ring", 0.8),
                            run_of("3", "ring", 0.6)};
  const SeedGroups groups = make_seed_groups(runs);
  EXPECT_TRUE(groups.several());
  ASSERT_EQ(groups.means.size(), 1U);
  const auto last = [](const report::Run& run) {
    return run.evaluations.back().at(Measure::kEvalAccuracy);
  };
  EXPECT_NEAR(last(groups.means[0]), (0.5 + 0.8 + 0.6) / 3, 1e-12);
  EXPECT_EQ(last(groups.lowest[0]), 0.5);
  EXPECT_EQ(last(groups.highest[0]), 0.8);
  EXPECT_EQ(groups.ranges[0].seeds.size(), 3U);
  EXPECT_EQ(groups.ranges[0].lowest, 0.5);
  EXPECT_EQ(groups.ranges[0].highest, 0.8);
  EXPECT_FALSE(groups.means[0].seed);
  EXPECT_EQ(groups.means[0].setting("seed"), std::nullopt);
}

TEST(SeedGroups, AlignWhereAllHaveAnEvaluation) {
  std::vector runs = {run_of("1", "ring", 0.5), run_of("2", "ring", 0.7)};
  runs[0].evaluations.erase(runs[0].evaluations.begin() + 1);  // not at step 50
  runs[1].evaluations.push_back(runs[1].evaluations.back());
  runs[1].evaluations.back().at(Measure::kStep) = 150;
  runs[1].evaluations[0].at(Measure::kEvalLoss) = kNotMeasured;
  const SeedGroups groups = make_seed_groups(runs);
  EXPECT_THAT(groups.means[0].column(Measure::kStep), ElementsAre(0, 100));
  EXPECT_THAT(groups.lowest[0].column(Measure::kStep), ElementsAre(0, 100));
  EXPECT_TRUE(std::isnan(groups.means[0].evaluations[0].at(Measure::kEvalLoss)));
  EXPECT_TRUE(std::isnan(groups.highest[0].evaluations[0].at(Measure::kEvalLoss)));
}

// A seed that goes on for longer has its own last accuracy, of which neither the mean nor its range
// is that of the last step that all have.
TEST(SeedGroups, TheFinalAccuracyIsTheMeanOfTheSeedsOwn) {
  std::vector runs = {run_of("1", "ring", 0.5), run_of("2", "ring", 0.7), run_of("1", "star", 0.4),
                      run_of("2", "star", 0.4)};
  report::Evaluation longer = runs[1].evaluations.back();
  longer.at(Measure::kStep) = 150;
  longer.at(Measure::kEvalAccuracy) = 0.9;
  runs[1].evaluations.push_back(longer);
  const SeedGroups groups = make_seed_groups(runs);
  EXPECT_NEAR(groups.ranges[0].mean.value(), 0.7, 1e-12);
  const std::vector<std::string> names = {"ring", "star"};
  const Comparison comparison = compare(groups.means, names, groups.ranges);
  EXPECT_EQ(comparison.rows[0][2], "0.7000 (0.5000 to 0.9000)");
  EXPECT_EQ(comparison.rows[1][2], "0.4000 (0.4000 to 0.4000)");
}

// Neither is read from the mean curve, which crosses 60 % at step 60 and ends at the shortest seed.
TEST(SeedGroups, CostsAndTheBestAreTheMeansOfTheSeedsOwn) {
  const auto of = [](const char* seed, const std::vector<double>& accuracies) {
    report::Run run = run_of(seed, "ring", 0);
    run.evaluations.resize(1);
    for (const double accuracy : accuracies) {
      Evaluation next = run.evaluations.back();
      next.at(Measure::kStep) += 30;
      next.at(Measure::kVirtualSeconds) += 3;
      next.at(Measure::kBytesSent) += 4000;
      next.at(Measure::kEvalAccuracy) = accuracy;
      run.evaluations.push_back(next);
    }
    return run;
  };
  const std::vector runs = {of("1", {0.64, 0.70}), of("2", {0.40, 0.58, 0.59, 0.62, 0.60})};
  const SeedGroups groups = make_seed_groups(runs);
  const Comparison comparison =
      compare(groups.means, std::vector<std::string>{"ring"}, groups.ranges);
  EXPECT_EQ(comparison.target, 0.6);
  EXPECT_EQ(comparison.rows[0][3], "0.6600") << "(0.70 + 0.62) / 2";
  EXPECT_EQ(comparison.rows[0][4], "75") << "30 and 120";
  EXPECT_EQ(comparison.rows[0][5], "7.5 s");
  EXPECT_EQ(comparison.rows[0][6], "2.5 kB");
  EXPECT_FALSE(mean_cost_of(groups.ranges[0], 0.65)) << "seed 2 never came there";
}

TEST(SeedGroups, HaveTheMetricsThatAllMembersSay) {
  std::vector runs = {run_of("1", "ring", 0.5), run_of("2", "ring", 0.7)};
  const MetricKey both{"mae", Source::kEval};
  const MetricKey one{"f1", Source::kTrain};
  runs[0].evaluations[1].metrics = {{both, 2}, {one, 1}};
  runs[1].evaluations[1].metrics = {{both, 4}};
  const SeedGroups groups = make_seed_groups(runs);
  EXPECT_EQ(groups.means[0].evaluations[1].at(both), 3);
  EXPECT_EQ(groups.lowest[0].evaluations[1].at(both), 2);
  EXPECT_EQ(groups.highest[0].evaluations[1].at(both), 4);
  EXPECT_TRUE(std::isnan(groups.means[0].evaluations[1].at(one)));
  EXPECT_TRUE(std::isnan(groups.means[0].evaluations[0].at(both)));
  const std::vector<std::string> names = {"ring"};
  const auto charts = metric_charts({groups.means, names, groups.lowest, groups.highest});
  ASSERT_EQ(charts.size(), 1U);
  EXPECT_EQ(charts[0].series.at(0).lower.at(1), 2);
  EXPECT_EQ(charts[0].series.at(0).upper.at(1), 4);
}

TEST(SeedGroups, RunsOnTheirOwnStayAsTheyAre) {
  const std::vector runs = {run_of("1", "ring", 0.5), run_of("2", "star", 0.7)};
  const SeedGroups groups = make_seed_groups(runs);
  EXPECT_FALSE(groups.several());
  EXPECT_EQ(groups.means[0].seed, 1);
  EXPECT_TRUE(groups.lowest[0].evaluations.empty()) << "no band";
  EXPECT_THAT(distinguishing_names(groups.means), ElementsAre("ring, seed 1", "star, seed 2"));
  const std::vector more = {runs[0], runs[1], run_of("3", "ring", 0.6)};
  EXPECT_THAT(distinguishing_names(make_seed_groups(more).means), ElementsAre("ring", "star"))
      << "beside a mean over seeds no seed stands in a name";
}

}  // namespace
}  // namespace starling::report
