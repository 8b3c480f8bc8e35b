// SPDX-License-Identifier: Apache-2.0
// starling-gossip simulate as a process that is interrupted and killed, and begun again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <csignal>
#include <fstream>

#include "core/base/durable_file.h"
#include "tests/support/one_line.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temporary_directory.h"

namespace starling {
namespace {

using ::testing::HasSubstr;
using testing::in_one_line;
using ::testing::Not;
using testing::Process;

class StoppedSimulation : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }
  static std::string program() { return (testing::build_root() / "bin/starling-gossip").string(); }

  // Long enough to be stopped between two evaluations.
  std::vector<std::string> command(const std::string& out,
                                   const std::vector<std::string>& more) const {
    std::vector<std::string> words{program(),   "simulate",
                                   "--dataset", "synthetic:rows=2000,features=64,classes=10",
                                   "--nodes",   "32",
                                   "--steps",   "2000",
                                   "--every",   "100",
                                   "--threads", "1",
                                   "--out",     path(out).string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  boost::json::object summary(const std::string& out) const {
    const auto text = read_text_file(path(out) / "summary.json", 1 << 20);
    EXPECT_TRUE(text);
    return text ? boost::json::parse(*text).as_object() : boost::json::object();
  }
  // metrics.jsonl but for how long it took.
  std::string metrics(const std::string& out) const {
    std::ifstream file(path(out) / "metrics.jsonl");
    std::string all;
    for (std::string line; std::getline(file, line);) {
      boost::json::object measurement = boost::json::parse(line).as_object();
      measurement.erase("wall_seconds");
      all += boost::json::serialize(measurement) + "\n";
    }
    return all;
  }
  // Empty where it is missing: all-reduce has no graph.
  static std::string content(const std::filesystem::path& file) {
    const auto text = read_text_file(file, 1 << 20);
    return text ? *text : std::string();
  }
  void expect_same(const std::string& one, const std::string& other) const {
    for (const char* member : {"settings", "models_sha256", "trace_sha256", "topology", "steps"}) {
      EXPECT_EQ(summary(one).at(member), summary(other).at(member)) << member;
    }
    EXPECT_EQ(metrics(one), metrics(other));
    for (const char* file : {"model.safetensors", "topology.svg"}) {
      EXPECT_EQ(content(path(one) / file), content(path(other) / file)) << file;
    }
    EXPECT_FALSE(std::filesystem::exists(path(other) / "checkpoint.state"));
    EXPECT_FALSE(std::filesystem::exists(path(other) / "unfinished.json"));
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(StoppedSimulation, InterruptedAndKilledItEndsAsIfNothingHadBeen) {
  for (const char* algorithm : {"dpsgd", "ad-psgd", "all-reduce"}) {
    const std::string whole = std::string("whole-") + algorithm;
    const std::string stopped = std::string("stopped-") + algorithm;
    const std::vector<std::string> flags{"--algorithm", algorithm, "--topology", "ring"};
    ASSERT_EQ(testing::run(command(whole, flags)).exit_code, 0);
    {
      Process run(command(stopped, flags));
      ASSERT_TRUE(run.wait_for("[step 300/2000]")) << run.output();
      run.signal(SIGINT);
      EXPECT_EQ(run.wait(), 128 + SIGINT);
      EXPECT_THAT(in_one_line(run.output()), HasSubstr(": the same command goes on from there"));
      EXPECT_TRUE(std::filesystem::exists(path(stopped) / "checkpoint.state"));
    }
    // Its report can be made before it goes on.
    const auto report = testing::run({program(), "report", path(stopped).string()});
    EXPECT_EQ(report.exit_code, 0) << report.output;
    EXPECT_THAT(in_one_line(report.output), HasSubstr("has not finished; the report ends at step"));
    const auto page = read_text_file(path(stopped) / "report.html", 1 << 22);
    ASSERT_TRUE(page);
    EXPECT_THAT(*page, HasSubstr("Unfinished: this is what was measured until step"));
    EXPECT_THAT(*page, HasSubstr(" of 2,000. The command that began it goes on from its last "));
    {
      Process run(command(stopped, flags));
      ASSERT_TRUE(run.wait_for("[step 700/2000]")) << run.output();
      run.signal(SIGKILL);
      EXPECT_EQ(run.wait(), 128 + SIGKILL);
      EXPECT_THAT(run.output(), HasSubstr("goes on after step "));
      EXPECT_THAT(run.output(), Not(HasSubstr("[step 300/2000]"))) << "it was said before";
    }
    const auto other = testing::run(command(
        stopped, {"--algorithm", algorithm, "--topology", "ring", "--learning-rate", "0.2"}));
    EXPECT_NE(other.exit_code, 0);
    EXPECT_THAT(in_one_line(other.output),
                HasSubstr("holds an unfinished run with other settings (train.learning-rate is 0.1 "
                          "there and 0.2 here)"));
    ASSERT_EQ(testing::run(command(stopped, flags)).exit_code, 0);
    expect_same(whole, stopped);
  }
}

TEST_F(StoppedSimulation, KilledBeforeItsFirstCheckpointItBeginsAgain) {
  ASSERT_EQ(testing::run(command("whole", {})).exit_code, 0);
  {
    Process run(command("killed", {}));
    ASSERT_TRUE(run.wait_for("[step 100/2000]")) << run.output();
    run.signal(SIGKILL);
    EXPECT_EQ(run.wait(), 128 + SIGKILL);
  }
  ASSERT_EQ(testing::run(command("killed", {})).exit_code, 0);
  expect_same("whole", "killed");
}

TEST_F(StoppedSimulation, ADamagedCheckpointIsRefusedWithASentence) {
  {
    Process run(command("out", {}));
    ASSERT_TRUE(run.wait_for("[step 200/2000]")) << run.output();
    run.signal(SIGTERM);
    EXPECT_EQ(run.wait(), 128 + SIGTERM);
  }
  const auto file = path("out") / "checkpoint.state";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 100);
  const auto refused = testing::run(command("out", {}));
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(in_one_line(refused.output), HasSubstr("checkpoint.state is damaged"));
  EXPECT_THAT(in_one_line(refused.output), HasSubstr("remove "));
}

// What is measured is written anew from the checkpoint, whatever a loss of power made of it; a part
// of a checkpoint that a kill left is removed.
TEST_F(StoppedSimulation, UnreadableMeasurementsDoNotKeepItFromGoingOn) {
  ASSERT_EQ(testing::run(command("whole", {})).exit_code, 0);
  {
    Process run(command("out", {}));
    ASSERT_TRUE(run.wait_for("[step 200/2000]")) << run.output();
    run.signal(SIGTERM);
    EXPECT_EQ(run.wait(), 128 + SIGTERM);
  }
  std::ofstream(path("out") / "metrics.jsonl") << std::string(100, '\0') << "\n";
  std::ofstream(path("out") / ".checkpoint.state.abcdef.tmp") << "half";
  const auto report = testing::run({program(), "report", path("out").string()});
  EXPECT_EQ(report.exit_code, 0) << report.output;
  const auto again = testing::run(command("out", {}));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  expect_same("whole", "out");
  EXPECT_FALSE(std::filesystem::exists(path("out") / ".checkpoint.state.abcdef.tmp"));
}

TEST_F(StoppedSimulation, TheSameCommandTwiceAtATimeIsRefused) {
  Process run(command("out", {}));
  ASSERT_TRUE(run.wait_for("[step 100/2000]")) << run.output();
  const auto second = testing::run(command("out", {}));
  EXPECT_NE(second.exit_code, 0);
  EXPECT_THAT(in_one_line(second.output), HasSubstr("another command writes a run into"));
  run.signal(SIGTERM);
  run.wait();
}

TEST_F(StoppedSimulation, AStudyGoesOnInsideItsStoppedRun) {
  const std::vector<std::string> flags{"--seeds", "1..3", "--topology", "ring"};
  ASSERT_EQ(testing::run(command("whole", flags)).exit_code, 0);
  {
    Process run(command("stopped", flags));
    ASSERT_TRUE(run.wait_for("[1/3]")) << run.output();
    run.signal(SIGINT);
    EXPECT_EQ(run.wait(), 128 + SIGINT);
    EXPECT_THAT(in_one_line(run.output()),
                HasSubstr("stopped: 1 of 3 runs finished; the same command goes on"));
  }
  EXPECT_TRUE(std::filesystem::exists(path("stopped/seed=2/checkpoint.state")));
  ASSERT_EQ(testing::run(command("stopped", flags)).exit_code, 0);
  for (const char* seed : {"seed=1", "seed=2", "seed=3"}) {
    expect_same(std::string("whole/") + seed, std::string("stopped/") + seed);
  }
}

}  // namespace
}  // namespace starling
