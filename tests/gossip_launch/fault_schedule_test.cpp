// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/fault_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace starling::gossip {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

FaultSchedule schedule(std::string_view text, Node nodes = 3, FaultSchedule::Links base = {}) {
  return FaultSchedule(*read_fault_script(text, "events.toml", nodes, 1), std::move(base));
}

// Without the lines for people.
std::vector<FaultAction> deeds(std::vector<FaultAction> actions) {
  std::erase_if(actions, [](const FaultAction& a) { return std::holds_alternative<TellFault>(a); });
  return actions;
}

TEST(FaultSchedule, AKilledNodeStaysDown) {
  auto faults = schedule("[k]\nat = \"2s\"\nkind = \"kill\"\nnodes = \"2\"\n");
  EXPECT_EQ(faults.next(), seconds(2));
  EXPECT_TRUE(faults.on(milliseconds(1999), 50).empty());
  EXPECT_EQ(deeds(faults.on(seconds(2), 60)), (std::vector<FaultAction>{KillNode{1}}));
  EXPECT_TRUE(faults.down(1));
  EXPECT_FALSE(faults.down(0));
  EXPECT_TRUE(faults.gone(1));
  EXPECT_FALSE(faults.gone(0));
  EXPECT_FALSE(faults.next());
}

TEST(FaultSchedule, APausedNodeIsGoneWhereThePauseHasNoEnd) {
  auto faults = schedule(
      "[a]\nat = \"1s\"\nkind = \"pause\"\nnodes = \"1\"\n"
      "[b]\nat = \"1s\"\nkind = \"pause\"\nnodes = \"2\"\nfor = \"9s\"\n"
      "[c]\nat = \"1s\"\nkind = \"stall\"\nnodes = \"3\"\n");
  faults.on(seconds(2), 0);
  EXPECT_TRUE(faults.gone(0));
  EXPECT_FALSE(faults.gone(1));
  EXPECT_FALSE(faults.gone(2));
}

TEST(FaultSchedule, ARestartComesBack) {
  auto faults = schedule("[r]\nstep = 10\nkind = \"restart\"\nnodes = \"1\"\nfor = \"3s\"\n");
  EXPECT_FALSE(faults.next());
  EXPECT_TRUE(faults.on(seconds(1), 9).empty());
  EXPECT_EQ(deeds(faults.on(seconds(2), 10)), (std::vector<FaultAction>{KillNode{0}}));
  EXPECT_EQ(faults.next(), seconds(5));
  EXPECT_TRUE(faults.on(seconds(4), 11).empty());
  EXPECT_EQ(deeds(faults.on(seconds(5), 11)), (std::vector<FaultAction>{StartNode{0}}));
  EXPECT_FALSE(faults.down(0));
}

TEST(FaultSchedule, ARestartWithoutADurationComesBackAtOnce) {
  auto faults = schedule("[r]\nat = \"1s\"\nkind = \"restart\"\nnodes = \"1\"\n");
  EXPECT_EQ(deeds(faults.on(seconds(1), 0)), (std::vector<FaultAction>{KillNode{0}, StartNode{0}}));
}

TEST(FaultSchedule, OverlappingRestartsKillAndStartOnce) {
  auto faults = schedule(
      "[a]\nat = \"1s\"\nkind = \"restart\"\nnodes = \"1\"\nfor = \"4s\"\n"
      "[b]\nat = \"2s\"\nkind = \"restart\"\nnodes = \"1\"\nfor = \"9s\"\n");
  EXPECT_EQ(deeds(faults.on(seconds(3), 0)), (std::vector<FaultAction>{KillNode{0}}));
  EXPECT_TRUE(deeds(faults.on(seconds(6), 0)).empty());
  EXPECT_EQ(deeds(faults.on(seconds(11), 0)), (std::vector<FaultAction>{StartNode{0}}));
}

TEST(FaultSchedule, ANodeThatComesBackInAPauseIsPaused) {
  auto faults = schedule(
      "[a]\nat = \"1s\"\nkind = \"restart\"\nnodes = \"1\"\nfor = \"2s\"\n"
      "[b]\nat = \"2s\"\nkind = \"pause\"\nnodes = \"1\"\nfor = \"9s\"\n");
  EXPECT_EQ(deeds(faults.on(seconds(2), 0)), (std::vector<FaultAction>{KillNode{0}}));
  EXPECT_EQ(deeds(faults.on(seconds(3), 0)),
            (std::vector<FaultAction>{StartNode{0}, PauseNode{0}}));
  EXPECT_EQ(deeds(faults.on(seconds(11), 0)), (std::vector<FaultAction>{ResumeNode{0}}));
}

TEST(FaultSchedule, LinksAreAsTheWorstOfWhatMeetsThem) {
  const FaultSchedule::Links base = {{{0, 1}, {.delay = milliseconds(3)}}};
  auto faults = schedule(
      "[hold]\nat = \"1s\"\nkind = \"partition\"\nnodes = \"1\"\ndirection = \"out\"\nfor = "
      "\"4s\"\n"
      "[far]\nat = \"2s\"\nkind = \"delay\"\nnodes = \"1\"\nothers = \"2\"\ndirection = \"out\"\n"
      "delay = \"9ms\"\nfor = \"6s\"\n"
      "[thin]\nat = \"3s\"\nkind = \"bandwidth\"\nnodes = \"1\"\nothers = \"2\"\n"
      "direction = \"out\"\nbandwidth = \"1MB/s\"\nfor = \"10s\"\n",
      2, base);
  const auto at = [&](int second) {
    const auto actions = deeds(faults.on(seconds(second), 0));
    EXPECT_EQ(actions.size(), 1U) << second;
    return actions.empty() ? LinkCondition() : std::get<SetLink>(actions[0]).condition;
  };
  EXPECT_EQ(at(1), (LinkCondition{.delay = milliseconds(3), .held = true}));
  EXPECT_EQ(at(2), (LinkCondition{.delay = milliseconds(9), .held = true}));
  EXPECT_EQ(at(3),
            (LinkCondition{.delay = milliseconds(9), .bytes_per_second = 1e6, .held = true}));
  EXPECT_EQ(at(5), (LinkCondition{.delay = milliseconds(9), .bytes_per_second = 1e6}));
  EXPECT_EQ(at(8), (LinkCondition{.delay = milliseconds(3), .bytes_per_second = 1e6}));
  EXPECT_EQ(at(13), (LinkCondition{.delay = milliseconds(3)}));
}

TEST(FaultSchedule, AResetIsADeedOfAMoment) {
  auto faults = schedule("[r]\nat = \"1s\"\nkind = \"reset\"\nnodes = \"1\"\n");
  EXPECT_EQ(deeds(faults.on(seconds(1), 0)),
            (std::vector<FaultAction>{ResetLink{0, 1}, ResetLink{0, 2}}));
  EXPECT_FALSE(faults.next());
}

TEST(FaultSchedule, WhatBeginsAndEndsIsTold) {
  auto faults = schedule("[nap]\nat = \"1s\"\nkind = \"pause\"\nnodes = \"2\"\nfor = \"1s\"\n");
  EXPECT_EQ(faults.on(seconds(1), 0).front(),
            FaultAction(TellFault{"at 1s pause of node 2 for 1s (nap)"}));
  EXPECT_EQ(faults.on(seconds(2), 0).front(), FaultAction(TellFault{"nap is over"}));
}

// Whatever overlaps: a node is killed only while it runs and started only while it is down, and
// once every event is over all is as before.
TEST(FaultSchedule, DrawnScriptsNeverDoTwice) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const ChaosOptions options{.count = 40, .until = seconds(30), .lasts = seconds(8)};
    FaultSchedule faults(*draw_faults(options, 5, seed));
    std::set<Node> down;
    std::set<Node> paused;
    FaultSchedule::Links links;
    while (const auto next = faults.next()) {
      for (const FaultAction& action : faults.on(*next, 0)) {
        if (const auto* kill = std::get_if<KillNode>(&action)) {
          ASSERT_TRUE(down.insert(kill->node).second) << "seed " << seed;
          paused.erase(kill->node);
        } else if (const auto* start = std::get_if<StartNode>(&action)) {
          ASSERT_EQ(down.erase(start->node), 1U) << "seed " << seed;
        } else if (const auto* pause = std::get_if<PauseNode>(&action)) {
          ASSERT_FALSE(down.contains(pause->node)) << "seed " << seed;
          ASSERT_TRUE(paused.insert(pause->node).second) << "seed " << seed;
        } else if (const auto* resume = std::get_if<ResumeNode>(&action)) {
          ASSERT_EQ(paused.erase(resume->node), 1U) << "seed " << seed;
        } else if (const auto* set = std::get_if<SetLink>(&action)) {
          links[{set->from, set->to}] = set->condition;
        }
      }
    }
    EXPECT_TRUE(down.empty() && paused.empty()) << "seed " << seed;
    for (const auto& [link, condition] : links) EXPECT_EQ(condition, LinkCondition());
  }
}

}  // namespace
}  // namespace starling::gossip
