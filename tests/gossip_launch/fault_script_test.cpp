// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/fault_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/durable_file.h"
#include "tests/support/paths.h"

namespace starling::gossip {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

FaultScript read(std::string_view text, Node nodes = 8, std::uint64_t seed = 1) {
  auto script = read_fault_script(text, "events.toml", nodes, seed);
  EXPECT_TRUE(script) << script.error().message();
  return script ? std::move(*script) : FaultScript();
}

std::string refusal(std::string_view text) {
  const auto script = read_fault_script(text, "events.toml", 8, 1);
  EXPECT_FALSE(script) << text;
  return script ? std::string() : script.error().message();
}

TEST(FaultScript, EventsAreInTheOrderOfTheirTime) {
  const auto script = read(R"(
[late]
at = "30s"
kind = "restart"
nodes = "3"
for = "5s"
[by-step]
step = 100
kind = "kill"
nodes = "2-4,7"
[early]
at = "500ms"
kind = "pause"
nodes = "all"
for = "1s"
)");
  ASSERT_EQ(script.size(), 3U);
  EXPECT_EQ(script[0].name, "early");
  EXPECT_EQ(script[0].nodes.size(), 8U);
  EXPECT_EQ(script[1].name, "late");
  EXPECT_EQ(script[1].kind, FaultKind::kRestart);
  EXPECT_EQ(script[1].at, seconds(30));
  EXPECT_EQ(script[1].lasts, seconds(5));
  EXPECT_THAT(script[1].nodes, ElementsAre(2U));
  EXPECT_EQ(script[2].step, 100U);
  EXPECT_FALSE(script[2].at);
  EXPECT_THAT(script[2].nodes, ElementsAre(1U, 2U, 3U, 6U));
  EXPECT_EQ(to_text(script[1]), "at 30s restart of node 3 for 5s (late)");
  EXPECT_EQ(to_text(script[2]), "at step 100 kill of nodes 2-4,7 (by-step)");
}

TEST(FaultScript, APartitionIsBetweenTheNodesAndTheRest) {
  const auto script = read("[p]\nat = \"1s\"\nkind = \"partition\"\nnodes = \"1-2\"\n", 4);
  ASSERT_EQ(script.size(), 1U);
  EXPECT_TRUE(script[0].condition.held);
  EXPECT_THAT(script[0].links, ElementsAre(Pair(0, 2), Pair(0, 3), Pair(1, 2), Pair(1, 3),
                                           Pair(2, 0), Pair(2, 1), Pair(3, 0), Pair(3, 1)));
}

TEST(FaultScript, OneDirectionIsHalfOfTheLinks) {
  const std::string text = "[p]\nat = \"1s\"\nkind = \"partition\"\nnodes = \"1\"\n";
  EXPECT_THAT(read(text + "direction = \"out\"\n", 3)[0].links,
              ElementsAre(Pair(0, 1), Pair(0, 2)));
  EXPECT_THAT(read(text + "direction = \"in\"\n", 3)[0].links, ElementsAre(Pair(1, 0), Pair(2, 0)));
  EXPECT_THAT(read(text + "others = \"2\"\n", 3)[0].links, ElementsAre(Pair(0, 1), Pair(1, 0)));
}

TEST(FaultScript, AStallIsAlsoAmongItsNodes) {
  const auto script = read("[s]\nat = \"1s\"\nkind = \"stall\"\nnodes = \"1-2\"\n", 3);
  EXPECT_EQ(script[0].links.size(), 6U);
  EXPECT_TRUE(script[0].condition.held);
}

TEST(FaultScript, AResetIsOfPairs) {
  const auto script = read("[r]\nat = \"1s\"\nkind = \"reset\"\nnodes = \"all\"\n", 3);
  EXPECT_THAT(script[0].links, ElementsAre(Pair(0, 1), Pair(0, 2), Pair(1, 2)));
}

TEST(FaultScript, DelaysAndRatesAreTaken) {
  const auto script = read(R"(
[slow]
at = "1s"
kind = "bandwidth"
bandwidth = "8Mbit/s"
nodes = "all"
[far]
at = "2s"
kind = "delay"
delay = "50ms"
jitter = "5ms"
for = "1m"
)");
  EXPECT_EQ(script[0].condition.bytes_per_second, 1e6);
  EXPECT_EQ(script[1].condition.delay, milliseconds(50));
  EXPECT_EQ(script[1].condition.jitter, milliseconds(5));
}

TEST(FaultScript, TheSeedDecidesWhatIsDrawn) {
  const std::string_view text = "[a]\nat = \"1s\"\nkind = \"kill\"\nnodes = \"random:3\"\n";
  EXPECT_EQ(read(text, 100, 7), read(text, 100, 7));
  std::set<std::vector<Node>> drawn;
  for (std::uint64_t seed = 0; seed < 20; ++seed) drawn.insert(read(text, 100, seed)[0].nodes);
  EXPECT_GT(drawn.size(), 15U);
  for (const auto& nodes : drawn) {
    EXPECT_EQ(nodes.size(), 3U);
    EXPECT_TRUE(std::ranges::is_sorted(nodes));
    EXPECT_LT(nodes.back(), 100U);
  }
}

TEST(FaultScript, WhatIsWrongIsSaidWithItsPlace) {
  EXPECT_THAT(refusal("at = \"1s\"\n"), HasSubstr("events.toml:1: an event is a table"));
  EXPECT_THAT(refusal("[a]\nkind = \"kill\"\n"),
              HasSubstr("events.toml:2: [a]: an event has either `at`"));
  EXPECT_THAT(refusal("[a]\nat = \"1s\"\nstep = 3\nkind = \"kill\"\n"), HasSubstr("either `at`"));
  EXPECT_THAT(refusal("[a]\nat = \"1s\"\n"), HasSubstr("has a `kind`: kill, restart"));
  EXPECT_THAT(refusal("[a]\nat = \"1s\"\nkind = \"explode\"\n"), HasSubstr("kill"));
  EXPECT_THAT(refusal("[a]\nat = \"1s\"\nkind = \"kill\"\nnode = \"3\"\n"),
              HasSubstr("the nearest known key is 'a.nodes'"));
  for (const char* nodes : {"0", "9", "3-2", "x", "random:9", "random:0", "", "1,,2", "1-"}) {
    EXPECT_THAT(
        refusal("[a]\nat = \"1s\"\nkind = \"kill\"\nnodes = \"" + std::string(nodes) + "\"\n"),
        HasSubstr("names no nodes"))
        << nodes;
  }
}

TEST(FaultScript, AKeyThatMeansNothingForTheKindIsRefused) {
  const auto with = [](const std::string& kind, const std::string& key) {
    return refusal("[a]\nat = \"1s\"\nkind = \"" + kind + "\"\n" + key + "\n");
  };
  EXPECT_THAT(with("kill", "for = \"1s\""), HasSubstr("`for` means nothing for kind = \"kill\""));
  EXPECT_THAT(with("reset", "for = \"1s\""), HasSubstr("`for`"));
  EXPECT_THAT(with("pause", "others = \"2\""), HasSubstr("`others`"));
  EXPECT_THAT(with("reset", "direction = \"in\""), HasSubstr("`direction`"));
  EXPECT_THAT(with("partition", "delay = \"1s\""), HasSubstr("`delay`"));
  EXPECT_THAT(with("bandwidth", "jitter = \"1s\""), HasSubstr("`jitter`"));
  EXPECT_THAT(with("stall", "bandwidth = \"1MB/s\""), HasSubstr("`bandwidth`"));
  EXPECT_THAT(with("delay", ""), HasSubstr("needs `delay`"));
  EXPECT_THAT(with("bandwidth", ""), HasSubstr("needs `bandwidth`, as \"10Mbit/s\""));
  EXPECT_THAT(with("bandwidth", "bandwidth = \"uniform:1MB/s,2MB/s\""), HasSubstr("one rate"));
  EXPECT_THAT(with("partition", "nodes = \"1\"\nothers = \"1\""), HasSubstr("no link"));
}

TEST(FaultScript, ChaosIsDrawnFromTheSeed) {
  const ChaosOptions options{.count = 50};
  const auto script = *draw_faults(options, 16, 3);
  ASSERT_EQ(script.size(), 50U);
  EXPECT_EQ(script, *draw_faults(options, 16, 3));
  EXPECT_NE(script, *draw_faults(options, 16, 4));
  std::set<FaultKind> kinds;
  for (const FaultEvent& event : script) {
    kinds.insert(event.kind);
    ASSERT_TRUE(event.at);
    EXPECT_GE(*event.at, options.from);
    EXPECT_LE(*event.at, options.until);
    EXPECT_LE(event.lasts, options.lasts * 3 / 2);
    EXPECT_EQ(event.nodes.size(), event.kind == FaultKind::kPartition ? 8U : 1U);
  }
  EXPECT_EQ(kinds.size(), 6U);
  EXPECT_FALSE(kinds.contains(FaultKind::kKill));
}

TEST(FaultScript, ChaosOfAnUnknownKindIsRefused) {
  const auto script = draw_faults({.count = 1, .kinds = "pause,melt"}, 4, 1);
  ASSERT_FALSE(script);
  EXPECT_THAT(script.error().message(), HasSubstr("'melt' is not a kind"));
}

TEST(FaultScript, TimesAndRatesAreSaidAsPeopleReadThem) {
  const auto script = read(R"(
[a]
at = "1s"
kind = "delay"
delay = "86ms"
jitter = "21500us"
[b]
at = "2s"
kind = "bandwidth"
bandwidth = "4752kB/s"
)",
                           2);
  ASSERT_EQ(script.size(), 2U);
  EXPECT_THAT(to_text(script[0]), HasSubstr(", 86ms and up to 21.5ms more"));
  EXPECT_THAT(to_text(script[1]), HasSubstr(", 4.8 MB/s"));
}

TEST(FaultScript, ChaosThatCannotBeIsRefusedByName) {
  const auto script = draw_faults({.count = 1, .kinds = "reset"}, 1, 1);
  ASSERT_FALSE(script);
  EXPECT_THAT(script.error().message(), HasSubstr("chaos-1, a reset: there is no link"));
}

TEST(FaultScript, MergedScriptsAreInOrder) {
  const auto a = read("[a]\nat = \"5s\"\nkind = \"kill\"\n[b]\nstep = 1\nkind = \"kill\"\n");
  const auto b = read("[c]\nat = \"1s\"\nkind = \"kill\"\n");
  const auto both = merge(a, b);
  ASSERT_EQ(both.size(), 3U);
  EXPECT_EQ(both[0].name, "c");
  EXPECT_EQ(both[1].name, "a");
  EXPECT_EQ(both[2].name, "b");
}

TEST(FaultScript, TheReadmeHasEveryKey) {
  const auto readme = read_text_file(testing::source_root() / "gossip/README.md", 1 << 20);
  ASSERT_TRUE(readme);
  const auto checked = config::check_documentation(fault_documents(), "events", *readme);
  EXPECT_TRUE(checked) << checked.error().message() << config::to_markdown(fault_documents());
}

}  // namespace
}  // namespace starling::gossip
