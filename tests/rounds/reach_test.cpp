// SPDX-License-Identifier: Apache-2.0
// How many clients can do a run, and which cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/machine/client_fit.h"
#include "tests/coordinator/coordinator_machine_fixture.h"

namespace starling::coordinator {
namespace {

class ReachTest : public CoordinatorMachineTest {
 protected:
  ReachTest() {
    context.job.round.cohort = 4;
    context.job.round.wait_for = 4;
  }
  void join_with(const std::string& client, std::uint64_t session,
                 std::vector<std::uint32_t> input) {
    feed(ClientAdmitted{client});
    feed(SessionOpened{SessionId(session), client});
    hear(session, protocol::Hello{.rows = 10, .abilities = {"fedavg"}, .input = std::move(input)});
  }
  Candidates::Reach reach() const { return machine.find_run(RunId(1))->candidates().reach(); }
  std::vector<std::string> left_out() const {
    std::vector<std::string> lines;
    for (const auto& one : reach().left_out) lines.push_back(one.client + ": " + one.reason);
    return lines;
  }
};

TEST_F(ReachTest, ARunThatWaitsSaysHowManyOfThoseThatAreThereCanDoIt) {
  join_with("a", 1, {4});
  join_with("b", 2, {4});
  join_with("wide", 3, {5});
  submit();
  ASSERT_FALSE(did<Say>().empty());
  EXPECT_EQ(did<Say>()[0].line,
            "[round 1/2] waiting for 4 clients (3 connected, 2 of them can do this run)");
  EXPECT_EQ(machine.waits_for(RunId(1)), "4 clients (3 connected, 2 of them can do this run)");
  feed(SessionClosed{SessionId(1)});
  feed(SessionClosed{SessionId(2)});
  EXPECT_EQ(machine.waits_for(RunId(1)), "4 clients (1 connected, none of them can do this run)");
  feed(SessionClosed{SessionId(3)});
  EXPECT_EQ(machine.waits_for(RunId(1)), "4 clients (0 connected)");
}

TEST_F(ReachTest, NamesThoseThatCannot) {
  feed(ClientAdmitted{"away", true, {.rows = 3, .abilities = {"fedavg"}, .input = {9}}});
  feed(ClientAdmitted{"new"});
  join_with("a", 1, {4});
  join_with("wide", 2, {5});
  submit();
  EXPECT_EQ(reach().admitted, 4U);
  EXPECT_EQ(reach().able, 2U) << "a, and the new one that has said nothing yet";
  EXPECT_EQ(reach().connected, 2U);
  EXPECT_THAT(left_out(), ::testing::ElementsAre("away: its rows have another shape",
                                                 "wide: its rows have another shape"));
}

TEST_F(ReachTest, CountsWhoIsNotAtWork) {
  context.job.round.cohort = 1;
  context.job.round.wait_for = 1;
  const auto able = [this] {
    const AbleClients found = count_connected_able(machine.clients(), {}, {{4}, 0});
    return std::pair(found.connected, found.free);
  };
  join_with("a", 1, {4});
  join_with("wide", 2, {5});
  EXPECT_EQ(able(), std::pair(1UL, 1UL));
  submit();
  EXPECT_EQ(able(), std::pair(1UL, 0UL));
  feed(SessionClosed{SessionId(1)});
  EXPECT_EQ(able(), std::pair(0UL, 0UL));
  join_with("a", 3, {4});
  EXPECT_EQ(able(), std::pair(1UL, 0UL)) << "it has its task still";
  join_with("b", 4, {4});
  EXPECT_EQ(able(), std::pair(2UL, 1UL));
  feed(StopRun{RunId(1)});
  EXPECT_EQ(able(), std::pair(2UL, 2UL));
}

TEST_F(ReachTest, CountsOutWhoFailsEveryTime) {
  context.job.round.cohort = 2;
  context.job.round.wait_for = 2;
  join("a", 1);
  join("b", 2);
  submit();
  const auto plans = sent<protocol::RoundPlan>();
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_TRUE(left_out().empty());
  hear(2, protocol::TaskFailed{plans[1].second.task, "data-mismatch", "other columns", true});
  EXPECT_THAT(left_out(), ::testing::ElementsAre("b: its tasks of this run failed: other columns"));
  EXPECT_EQ(reach().able, 1U);
}

}  // namespace
}  // namespace starling::coordinator
