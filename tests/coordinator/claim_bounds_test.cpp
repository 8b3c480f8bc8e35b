// SPDX-License-Identifier: Apache-2.0
// The weights that clients claim, by what they and the others announced. Of evaluations, whose
// scalars no strategy bounds.
#include "coordinator/machine/claim_bounds.h"

#include <gtest/gtest.h>

namespace starling::coordinator {
namespace {

class ClaimBoundsTest : public ::testing::Test {
 protected:
  void admit(const std::string& name, std::uint64_t rows, std::uint64_t held_out = 0) {
    clients.handle(ClientAdmitted{name, true, {.rows = rows, .held_out = held_out}});
    participants.push_back({name, TaskId(participants.size() + 1)});
  }
  ClaimBounds bounds() const {
    return ClaimBounds(run, protocol::TaskKind::kEvaluate, participants, clients);
  }
  // 0: refused.
  double counted(const std::string& name, double weight) const {
    const auto head = bounds().apply({.weight = weight}, {}, clients.find(name)->greeting);
    if (head) return head->weight;
    EXPECT_EQ(head.error().code(), "weight-above-rows");
    return 0;
  }

  RunStart run;
  CoordinatorOptions options;
  Turn turn;
  ClientTable clients{options, turn, {.went_away = [](auto&&...) {}}};
  std::vector<Participant> participants;
};

TEST_F(ClaimBoundsTest, OfTwoClientsOneAloneDoesNotRaiseTheMedian) {
  run.job.aggregation.weight_ratio_max = 2;
  admit("small", 10);
  admit("large", 1000);
  EXPECT_EQ(counted("large", 1000), 20);
  EXPECT_EQ(counted("small", 10), 10);
  EXPECT_EQ(bounds().describe_bound(20),
            "aggregation.weight-ratio-max; the clients of the round hold 10 rows in the median");
}

TEST_F(ClaimBoundsTest, AClientThatAnnouncesNoRowsCountsAsTheMedianAtMost) {
  run.job.aggregation.weight_ratio_max = 2;
  admit("old", 0);
  admit("new", 10);
  EXPECT_EQ(counted("old", 1e6), 10);
  run.job.aggregation.weight_ratio_max = 0;
  run.job.aggregation.weight_max = 500;
  EXPECT_EQ(counted("old", 1e6), 500);
  EXPECT_EQ(bounds().describe_bound(500), "aggregation.weight-max");
}

TEST_F(ClaimBoundsTest, AnEvaluationIsOfTheRowsHeldOutWhereTheClientSaysHowMany) {
  run.job.aggregation.weight_ratio_max = 0;
  admit("a", 1000, 5);
  admit("b", 1000);
  EXPECT_EQ(counted("a", 5), 5);
  EXPECT_EQ(counted("a", 6), 0);
  EXPECT_EQ(counted("b", 1000), 1000);
}

}  // namespace
}  // namespace starling::coordinator
