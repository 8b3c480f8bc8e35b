// SPDX-License-Identifier: Apache-2.0
// starling-gossip launch, as people use it, with peers that only pretend to train: what the
// launcher itself does, from certificates to cleaning up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <cstdlib>
#include <sstream>

#include "core/base/directory_lock.h"
#include "core/base/durable_file.h"
#include "core/config/command_line.h"
#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/tool/commands.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using ::testing::HasSubstr;

const std::string kPretendEdge = testing::build_root() / "bin/pretend_edge";

class LaunchCommand : public ::testing::Test {
 protected:
  LaunchCommand() {
    std::filesystem::create_directory(scratch());
    ::setenv("TMPDIR", scratch().c_str(), 1);
  }
  ~LaunchCommand() override {
    ::unsetenv("TMPDIR");
    EXPECT_TRUE(std::filesystem::is_empty(scratch())) << "something was left behind";
  }

  std::filesystem::path scratch() const { return directory_.path() / "scratch"; }
  std::filesystem::path out() const { return directory_.path() / "out"; }

  struct Answer {
    int code = 0;
    std::string out;
    std::string err;
  };
  static Answer run(std::vector<std::string> words, const AlgorithmCatalogue* own = nullptr) {
    words.insert(words.begin(), {"starling-gossip", "launch", "--dataset",
                                 "synthetic:rows=120,features=4,classes=3", "--nodes", "4",
                                 "--steps", "4", "--every", "2", "--threads", "1"});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    std::ostringstream out;
    std::ostringstream err;
    const SystemClock clock;
    CommandContext context{clock, out, err, {}};
    context.algorithms = own;
    CLI::App app("", "starling-gossip");
    config::set_up(app, "1.2.3");
    add_launch_command(app, context);
    const auto done = config::parse(app, arguments, out, err);
    const int code = done ? *done : context.run();
    return {code, out.str(), err.str()};
  }
  std::string events(const std::string& text) const {
    const auto path = directory_.path() / "events.toml";
    EXPECT_TRUE(write_durably(path, as_bytes(text)));
    return path.string();
  }

  testing::TemporaryDirectory directory_;
};

// Of a program with algorithms of its own.
TEST_F(LaunchCommand, SaysThatItTakesOnlyBuiltInAlgorithms) {
  AlgorithmCatalogue own;
  own.add("median", {.make = [](const Plan&, Node, std::span<const float>) { return nullptr; }});
  const Answer answer = run({"--algorithm", "median", "--edge", kPretendEdge}, &own);
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(answer.err, HasSubstr("launch takes only built-in algorithms"));
}

TEST_F(LaunchCommand, RunsANetworkAndWritesWhatSimulateWrites) {
  const Answer answer = run({"--edge", kPretendEdge, "--out", out().string()});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("[step 0/4]"));
  EXPECT_THAT(answer.err, HasSubstr("[step 4/4] train loss 0.5000"));
  EXPECT_THAT(answer.out, HasSubstr("4 nodes, 4 steps"));
  for (const char* file : {"metrics.jsonl", "summary.json", "model.safetensors", "topology.svg",
                           "report.html", "logs/node-0001.log", "logs/node-0004.log"}) {
    EXPECT_TRUE(std::filesystem::exists(out() / file)) << file;
  }
  const auto summary =
      boost::json::parse(*read_text_file(out() / "summary.json", 1 << 20)).as_object();
  EXPECT_EQ(summary.at("program"), "starling-gossip launch");
  const auto& final = summary.at("final").as_object();
  EXPECT_EQ(final.at("nodes_up"), 4);
  EXPECT_EQ(final.at("bytes_sent"), 1600);
  // The models are 0, 1, 2 and 3 everywhere.
  EXPECT_NEAR(final.at("consensus_distance").as_double(), std::sqrt(15 * 1.25), 1e-6);
}

TEST_F(LaunchCommand, KeysWithoutEffectAreWarnedOf) {
  const Answer answer = run({"--edge", kPretendEdge, "--ratio", "0.5", "--bad", "2"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("warning: algorithm.ratio has no effect: algorithm.name is "
                                    "dpsgd (it needs choco)\n"));
  EXPECT_THAT(answer.err, HasSubstr("robust.bad has no effect: robust.rule is not set"));
}

TEST_F(LaunchCommand, RunsThroughTheProxyWithFaults) {
  const Answer answer = run({"--edge", kPretendEdge, "--events",
                             events("[cut]\nat = \"0s\"\nkind = \"partition\"\nnodes = \"1-2\"\n"
                                    "for = \"1ms\"\n[again]\nat = \"0s\"\nkind = \"restart\"\n"
                                    "nodes = \"3\"\n")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("at 0s partition of nodes 1-2, 8 links for 1ms (cut)"));
  EXPECT_THAT(answer.err, HasSubstr("at 0s restart of node 3 (again)"));
}

TEST_F(LaunchCommand, APeerThatEndsByItselfIsNamedWithItsLastWord) {
  const Answer answer = run({"--edge", kPretendEdge, "--seed", "2"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err,
              HasSubstr("node-0002 ended with exit code 3; its last word: this one breaks"));
}

TEST_F(LaunchCommand, ANetworkThatDoesNotGetOnIsGivenUp) {
  const Answer answer = run({"--edge", kPretendEdge, "--seed", "3", "--patience", "1s"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("no peer got on for 1s: node-0001 is starting at step 0"));
}

TEST_F(LaunchCommand, ANetworkOfWhichNothingRunsAnyMoreIsGivenUpAtOnce) {
  const Answer answer = run({"--edge", kPretendEdge, "--seed", "4", "--patience", "1h", "--events",
                             events("[all]\nstep = 2\nkind = \"kill\"\nnodes = \"1-4\"\n")});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("no process runs, and no event starts one"));
}

// Which is the second, in place of the last steps.
class LaunchWithoutOnesEnd : public LaunchCommand {
 protected:
  Answer run_with(const std::string& event) const {
    return run({"--edge", kPretendEdge, "--seed", "5", "--patience", "3s", "--out", out().string(),
                "--events", events("[it]\nstep = 2\nnodes = \"2\"\n" + event)});
  }
  void expect_three_models() const {
    const auto summary =
        boost::json::parse(*read_text_file(out() / "summary.json", 1 << 20)).as_object();
    EXPECT_EQ(summary.at("final").as_object().at("nodes_up"), 3);
  }
};

TEST_F(LaunchWithoutOnesEnd, ItIsNamedWhereAnEventHasPausedIt) {
  const Answer answer = run_with("kind = \"pause\"\nfor = \"1h\"\n");
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("1 of 4 peers did not finish, and the result is without them: "
                                    "node-0002 is paused at step "));
  EXPECT_THAT(answer.err, HasSubstr("; the peers' logs are in"));
  expect_three_models();
}

TEST_F(LaunchWithoutOnesEnd, ItIsNamedWhereItDoesNotGetOn) {
  const Answer answer = run_with("kind = \"reset\"\n");
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("without them: node-0002 is training at step "));
  expect_three_models();
}

TEST_F(LaunchWithoutOnesEnd, ItIsNotExpectedWhereAnEventTakesItAwayForGood) {
  for (const std::string kind : {"kill", "pause"}) {
    const Answer answer = run_with("kind = \"" + kind + "\"\n");
    EXPECT_EQ(answer.code, 0) << answer.err;
    expect_three_models();
    std::filesystem::remove_all(out());
  }
}

TEST_F(LaunchCommand, EventsThatCameTooLateAreCounted) {
  const Answer answer = run({"--edge", kPretendEdge, "--events",
                             events("[late]\nat = \"1h\"\nkind = \"kill\"\nnodes = \"2\"\n")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("1 event did not happen: the run was over before"));
}

TEST_F(LaunchCommand, EventsAreShownWithoutARun) {
  const Answer answer =
      run({"--print-events", "--events", events("[a]\nstep = 3\nkind = \"kill\"\nnodes = \"2\"\n"),
           "--network.splits", "1s-2s:2"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("(network.splits 1)\n"));
  EXPECT_THAT(answer.out, HasSubstr("at step 3 kill of node 2 (a)\n"));
}

TEST_F(LaunchCommand, EventsAreShownAsJson) {
  const Answer answer = run({"--print-events", "--format", "json", "--events",
                             events("[a]\nstep = 3\nkind = \"kill\"\nnodes = \"2\"\n"
                                    "[b]\nat = \"2s\"\nkind = \"pause\"\nnodes = \"1-2\"\n"
                                    "for = \"500ms\"\n")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto shown = boost::json::parse(answer.out);
  const auto expected = boost::json::parse(R"json([
    {"name": "b", "kind": "pause", "at_seconds": 2.0, "at_step": null, "lasts_seconds": 0.5,
     "nodes": [1, 2], "text": "at 2s pause of nodes 1-2 for 500ms (b)"},
    {"name": "a", "kind": "kill", "at_seconds": null, "at_step": 3, "lasts_seconds": 0.0,
     "nodes": [2], "text": "at step 3 kill of node 2 (a)"}])json");
  EXPECT_EQ(shown, expected) << answer.out;
}

TEST_F(LaunchCommand, WhatADirectoryHoldsIsSaid) {
  std::filesystem::create_directory(out());
  {
    const DirectoryLock other(out());
    EXPECT_THAT(run({"--out", out().string(), "--launch.edge", kPretendEdge}).err,
                HasSubstr("another command writes a run into " + out().string() +
                          ": wait for its end, or name another directory with --out"));
  }
  ASSERT_TRUE(write_durably(out() / "metrics.jsonl", as_bytes(std::string_view("{}\n"))));
  EXPECT_THAT(run({"--out", out().string(), "--launch.edge", kPretendEdge}).err,
              HasSubstr("holds a run that ended early and cannot go on: name a new directory with "
                        "--out, or remove it"));
}

TEST_F(LaunchCommand, WrongUseIsRefused) {
  EXPECT_EQ(run({"--edge", "/no/such/program"}).code, 2);
  EXPECT_EQ(run({"--nodes.stragglers", "0.5"}).code, 2);
  EXPECT_EQ(run({"--events", events("[a]\nat = \"1s\"\n")}).code, 2);
}

}  // namespace
}  // namespace starling::gossip
