// SPDX-License-Identifier: Apache-2.0
// What clients measured, together: who decides what.
#include "coordinator/rounds/measured_means.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/aggregate/middle_mean.h"

namespace starling::coordinator {
namespace {

using update::ContributionHead;

ContributionHead said(double rows, std::map<std::string, double> scalars) {
  ContributionHead head;
  head.weight = rows;
  head.scalars = std::move(scalars);
  return head;
}

Measured mean_of(const std::vector<ContributionHead>& heads) {
  MeasuredMeans means;
  for (const ContributionHead& head : heads) means.add(head);
  return means.result();
}

TEST(MeasuredMeans, AreOverTheRowsOfThoseWhoSayIt) {
  std::vector<ContributionHead> heads = {
      said(10, {{"loss", 1}, {"accuracy", 0.5}, {"metrics.mae", 2}}),
      said(30, {{"loss", -1}, {"accuracy", 0.9}}), said(60, {{"loss", 2}, {"metrics.mae", 4}})};
  for (int order = 0; order < 6; ++order) {
    const Measured measured = mean_of(heads);
    EXPECT_DOUBLE_EQ(measured.loss, (10 - 30 + 120) / 100.0);
    EXPECT_DOUBLE_EQ(measured.accuracy.value(), (5 + 27) / 40.0);
    EXPECT_DOUBLE_EQ(measured.metrics.at("mae"), (20 + 240) / 70.0);
    std::ranges::next_permutation(heads, {}, [](const auto& h) { return h.weight; });
  }
}

// One client must not decide which model is best.
TEST(MeasuredMeans, NeedAMajorityForTheAccuracy) {
  std::vector<ContributionHead> heads = {said(1, {{"loss", 1}, {"accuracy", 0.99}}),
                                         said(1, {{"loss", 1}})};
  EXPECT_FALSE(mean_of(heads).accuracy);
  heads.push_back(said(1, {{"loss", 1}, {"accuracy", 0.5}}));
  EXPECT_TRUE(mean_of(heads).accuracy);
}

// Nor by a metric when a run ends.
TEST(MeasuredMeans, NeedAMajorityForTheMetricThatEndsTheRun) {
  const aggregate::MiddleMean median = aggregate::MiddleMean::median();
  std::vector<ContributionHead> heads = {
      said(1, {{"loss", 1}, {"metrics.mae", 9}, {"metrics.f1", 1}}), said(1, {{"loss", 1}})};
  const auto both = [&] {
    MeasuredMeans means("mae");
    std::vector<const ContributionHead*> all;
    for (const ContributionHead& head : heads) {
      means.add(head);
      all.push_back(&head);
    }
    const Measured by_mean = means.result();
    EXPECT_EQ(combine_measured(median, all, "mae").metrics, by_mean.metrics);
    return by_mean.metrics;
  };
  EXPECT_EQ(both(), (train::Metrics{{"f1", 1}})) << "others need none";
  heads.push_back(said(1, {{"loss", 1}, {"metrics.mae", 9}}));
  EXPECT_EQ(both(), (train::Metrics{{"f1", 1}, {"mae", 9}}));
}

TEST(MetricMeans, OfATrainingMayHaveAnAccuracy) {
  const auto code = [](const ContributionHead& head) {
    const auto checked = check_train_metrics(head);
    return checked ? std::string("accepted") : checked.error().code();
  };
  EXPECT_EQ(code(said(1, {{"train_loss", 1}, {"metrics.accuracy", 0.5}})), "accepted");
  EXPECT_EQ(code(said(1, {{"train_loss", 1}, {"metrics.loss", 1}})), "bad-scalars");
  EXPECT_EQ(code(said(1, {{"train_loss", 1}, {"metrics.", 1}})), "bad-scalars");
  EXPECT_EQ(code(said(1, {{"train_loss", 1}, {"metrics.a b", 1}})), "bad-scalars");
  std::map<std::string, double> many;
  for (int i = 0; i <= 32; ++i) many[fmt::format("metrics.m{}", i)] = 1;
  EXPECT_EQ(code(said(1, many)), "bad-scalars");
  MetricMeans means;
  means.add(said(10, {{"train_loss", 1}, {"metrics.mae", 2}}));
  means.add(said(30, {{"train_loss", 1}, {"metrics.mae", 6}, {"metrics.accuracy", 0.5}}));
  EXPECT_EQ(means.result(), (train::Metrics{{"accuracy", 0.5}, {"mae", 5}}));
}

// A client with many names of its own takes no place of those that others say.
TEST(MeasuredMeans, KeepWhatMostClientsSay) {
  std::map<std::string, double> many{{"loss", 0}};
  for (std::size_t i = 0; i < train::kMetricsMax; ++i) many[fmt::format("metrics.%{:02}", i)] = 1;
  const std::vector<ContributionHead> heads = {said(1, many),
                                               said(1, {{"loss", 0}, {"metrics.f1", 3}}),
                                               said(1, {{"loss", 0}, {"metrics.f1", 5}})};
  const Measured measured = mean_of(heads);
  EXPECT_EQ(measured.metrics.size(), train::kMetricsMax);
  EXPECT_EQ(measured.metrics.at("f1"), 4);
  EXPECT_TRUE(measured.metrics.contains("%30"));
  EXPECT_FALSE(measured.metrics.contains("%31"));
}

}  // namespace
}  // namespace starling::coordinator
