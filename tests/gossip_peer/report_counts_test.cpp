// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/report_counts.h"

#include <gtest/gtest.h>

namespace starling::gossip {
namespace {

protocol::PeerReport report(const ReportCounts& counts, const TrainingProgress* progress) {
  protocol::PeerReport report;
  counts.add_to(report, progress);
  return report;
}

TEST(ReportCounts, TheLossIsOfTheStepsSinceTheReportBefore) {
  ReportCounts counts;
  TrainingProgress progress{.loss_sum = 6, .loss_steps = 3};
  EXPECT_EQ(report(counts, &progress).loss, 2);
  counts.reported(progress);
  EXPECT_EQ(report(counts, &progress).loss_steps, 0U);
  EXPECT_EQ(report(counts, &progress).loss, 0);
  progress.loss_sum += 8;
  progress.loss_steps += 2;
  EXPECT_EQ(report(counts, &progress).loss_steps, 2U);
  EXPECT_EQ(report(counts, &progress).loss, 4);
  counts.session_ended(progress);
  EXPECT_EQ(report(counts, nullptr).loss_steps, 0U);
  const TrainingProgress next{.loss_sum = 5, .loss_steps = 1};
  EXPECT_EQ(report(counts, &next).loss, 5) << "a session counts its own";
}

TEST(ReportCounts, MessagesAreOfAllSessions) {
  ReportCounts counts;
  const TrainingProgress first{.traffic = {.late = 1, .lost = 2, .staleness = 3}};
  EXPECT_EQ(report(counts, &first).staleness, 3U);
  counts.session_ended(first);
  EXPECT_EQ(report(counts, nullptr).lost, 2U);
  const TrainingProgress second{.traffic = {.late = 10, .lost = 20, .staleness = 30}};
  const auto sum = report(counts, &second);
  EXPECT_EQ(sum.late, 11U);
  EXPECT_EQ(sum.lost, 22U);
  EXPECT_EQ(sum.staleness, 33U);
}

TEST(ReportCounts, KnowInWhichRunAMessageArrivedLast) {
  ReportCounts counts;
  EXPECT_FALSE(counts.has_heard("one"));
  counts.message_arrived("one");
  EXPECT_TRUE(counts.has_heard("one"));
  counts.message_arrived("two");
  EXPECT_FALSE(counts.has_heard("one"));
  EXPECT_EQ(report(counts, nullptr).arrived, 2U);
}

}  // namespace
}  // namespace starling::gossip
