// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/round_machine.h"

#include <gtest/gtest.h>

#include "coordinator/machine/client_sampler.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using Verdict = RoundMachine::Verdict;

std::vector<Participant> participants(int count) {
  std::vector<Participant> all;
  for (int i = 1; i <= count; ++i) {
    all.push_back({"client-" + std::to_string(i), TaskId(static_cast<std::uint64_t>(i))});
  }
  return all;
}

class RoundMachineTest : public ::testing::Test {
 protected:
  void count(std::uint64_t task) {
    ASSERT_TRUE(round.offered(TaskId(task), 10));
    ASSERT_TRUE(round.received(TaskId(task)));
    ASSERT_EQ(round.next_to_sum(), TaskId(task));
    round.summed(TaskId(task), {});
  }
  TimePoint start{};
  RoundMachine round{
      {.run = RunId(1), .round = 3, .updates_wanted = 3, .updates_needed = 2, .deadline = 60s},
      participants(4),
      start};
};

TEST_F(RoundMachineTest, ClosesWhenAsManyAsWantedAreIn) {
  count(1);
  count(2);
  EXPECT_EQ(round.verdict(start), Verdict::kOpen);
  count(4);
  EXPECT_EQ(round.verdict(start), Verdict::kCommit);
  const RoundSummary summary = round.close(start + 5s);
  EXPECT_TRUE(summary.committed);
  ASSERT_EQ(summary.contributors.size(), 3U);
  EXPECT_EQ(summary.contributors[2].client, "client-4");
  ASSERT_EQ(summary.failures.size(), 1U);
  EXPECT_EQ(summary.failures[0].client, "client-3");
  EXPECT_EQ(summary.failures[0].code, "round-closed");
}

TEST_F(RoundMachineTest, AtTheDeadlineEnoughCommitAndFewerAbandon) {
  count(1);
  EXPECT_EQ(round.verdict(start + 59s), Verdict::kOpen);
  EXPECT_EQ(round.verdict(start + 60s), Verdict::kAbandon);
  count(2);
  EXPECT_EQ(round.verdict(start + 60s), Verdict::kCommit);
  const RoundSummary summary = round.close(start + 60s);
  ASSERT_EQ(summary.failures.size(), 2U);
  EXPECT_EQ(summary.failures[0].code, "deadline");
}

TEST_F(RoundMachineTest, ClosesEarlyWhenEveryoneIsSettled) {
  count(1);
  count(2);
  EXPECT_TRUE(round.failed(TaskId(3), rejected("diverged", "x")));
  EXPECT_EQ(round.verdict(start), Verdict::kOpen);
  EXPECT_TRUE(round.failed(TaskId(4), rejected("diverged", "x")));
  EXPECT_EQ(round.verdict(start), Verdict::kCommit);
}

TEST_F(RoundMachineTest, NeverClosesWhileSomethingIsBeingAdded) {
  count(1);
  count(2);
  round.offered(TaskId(3), 1);
  round.received(TaskId(3));
  round.next_to_sum();
  EXPECT_EQ(round.verdict(start + 100s), Verdict::kOpen);
  EXPECT_FALSE(round.failed(TaskId(3), rejected("x", "x"))) << "its sum is under way";
  round.summed(TaskId(3), rejected("not-finite", "x"));
  EXPECT_EQ(round.verdict(start + 100s), Verdict::kCommit);
  EXPECT_EQ(round.close(start + 100s).failures[0].code, "not-finite");
}

TEST_F(RoundMachineTest, AddsNoMoreThanAreWantedUnlessOneFails) {
  for (const std::uint64_t task : {4U, 1U, 3U, 2U}) {
    round.offered(TaskId(task), 1);
    round.received(TaskId(task));
  }
  EXPECT_EQ(round.next_to_sum(), TaskId(4));
  EXPECT_EQ(round.next_to_sum(), TaskId(1));
  EXPECT_EQ(round.next_to_sum(), TaskId(3));
  EXPECT_FALSE(round.next_to_sum()) << "three are wanted";
  round.summed(TaskId(1), rejected("not-finite", "x"));
  EXPECT_EQ(round.next_to_sum(), TaskId(2)) << "in the place of the one that failed";
  round.summed(TaskId(4), {});
  round.summed(TaskId(3), {});
  round.summed(TaskId(2), {});
  EXPECT_EQ(round.close(start).contributors.size(), 3U);
}

TEST_F(RoundMachineTest, AnUploadThatWaitsForItsTurnMayStillFail) {
  for (const std::uint64_t task : {1U, 2U, 3U, 4U}) {
    round.offered(TaskId(task), 1);
    round.received(TaskId(task));
  }
  for (int i = 0; i < 3; ++i) round.next_to_sum();
  EXPECT_TRUE(round.failed(TaskId(4), rejected("certificate-revoked", "x")));
  round.summed(TaskId(1), rejected("not-finite", "x"));
  EXPECT_FALSE(round.next_to_sum()) << "its turn never comes";
}

TEST_F(RoundMachineTest, AStoppedRoundGivesEveryoneAReason) {
  count(1);
  round.failed(TaskId(2), rejected("diverged", "x"));
  const RoundSummary summary = round.close(start, rejected("run-stopped", "stopped"));
  EXPECT_FALSE(summary.committed);
  EXPECT_EQ(summary.contributors.size(), 1U);
  ASSERT_EQ(summary.failures.size(), 3U);
  EXPECT_EQ(summary.failures[0].code, "diverged");
  EXPECT_EQ(summary.failures[1].code, "run-stopped");
}

TEST_F(RoundMachineTest, RepeatedAndLateMessagesChangeNothing) {
  count(1);
  EXPECT_FALSE(round.offered(TaskId(1), 99));
  EXPECT_FALSE(round.received(TaskId(1)));
  EXPECT_FALSE(round.failed(TaskId(1), rejected("x", "x")));
  EXPECT_FALSE(round.received(TaskId(2))) << "not offered";
  EXPECT_TRUE(round.offered(TaskId(2), 1));
  EXPECT_TRUE(round.offered(TaskId(2), 1)) << "offered again after a reconnect";
  round.interrupted(TaskId(2));
  EXPECT_FALSE(round.received(TaskId(2)));
  EXPECT_TRUE(round.failed(TaskId(2), rejected("x", "x")));
  EXPECT_FALSE(round.failed(TaskId(2), rejected("y", "y")));
  EXPECT_FALSE(round.offered(TaskId(2), 1));
  EXPECT_EQ(round.close(start + 60s).failures.front().code, "x");
}

TEST_F(RoundMachineTest, ATaskBelongsToItsClientAlone) {
  EXPECT_TRUE(round.find(TaskId(1), "client-1"));
  EXPECT_FALSE(round.find(TaskId(1), "client-2"));
  EXPECT_FALSE(round.find(TaskId(9), "client-1"));
  EXPECT_EQ(round.task_of("client-2"), TaskId(2));
  EXPECT_FALSE(round.task_of("stranger"));
}

TEST(ClientSampler, IsDrawnFromNamesAndNothingElse) {
  const std::vector<std::string> names{"a", "b", "c", "d", "e", "f", "g"};
  const SelectionKey key{RunId(1), 5, 2, 1};
  const auto drawn = select_clients(names, 5, key);
  EXPECT_EQ(drawn.size(), 5U);
  EXPECT_EQ(select_clients(names, 5, key), drawn);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end(),
                             [](const auto& a, const auto& b) { return a.client < b.client; }));
  EXPECT_NE(select_clients(names, 5, {RunId(1), 5, 3, 1}), drawn);
  EXPECT_NE(select_clients(names, 5, {RunId(1), 5, 2, 2}), drawn);
  EXPECT_EQ(select_clients(names, 100, key).size(), 7U);
}

TEST(ClientSampler, AnotherRunOfTheSameNumberHasOtherTasksButTheSameCohort) {
  const std::vector<std::string> names{"a", "b", "c", "d"};
  const auto one = select_clients(names, 2, {RunId(1), 5, 2, 1, 77});
  const auto two = select_clients(names, 2, {RunId(1), 5, 2, 1, 78});
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].client, two[i].client);
    EXPECT_NE(one[i].task, two[i].task);
  }
}

TEST(ClientSampler, ADifferentRunHasDifferentTasksButTheSameCohort) {
  const std::vector<std::string> names{"a", "b", "c", "d"};
  const auto one = select_clients(names, 2, {RunId(1), 5, 2, 1});
  const auto two = select_clients(names, 2, {RunId(2), 5, 2, 1});
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].client, two[i].client);
    EXPECT_NE(one[i].task, two[i].task);
  }
}

TEST(ClientSampler, EveryClientIsDrawnEquallyOften) {
  std::vector<std::string> names;
  for (char c = 'a'; c < 'k'; ++c) names.emplace_back(1, c);
  std::map<std::string, int> counts;
  constexpr int kRounds = 4000;
  for (Round round = 1; round <= kRounds; ++round) {
    for (const auto& p : select_clients(names, 3, {RunId(1), 9, round, 1})) ++counts[p.client];
  }
  for (const auto& [name, n] : counts) EXPECT_NEAR(n, kRounds * 0.3, 130) << name;  // 4.5 sigma
}

}  // namespace
}  // namespace starling::coordinator
