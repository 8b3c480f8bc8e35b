// SPDX-License-Identifier: Apache-2.0
// starling-coordinator simulate as a process that is interrupted and killed, and begun again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>

#include "core/base/durable_file.h"
#include "tests/support/one_line.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/timeless_run.h"

namespace starling {
namespace {

using ::testing::HasSubstr;
using testing::in_one_line;
using testing::Process;

class StoppedFederation : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path("job.toml")) << "rounds = 60\n"
                                       "[model]\nkind = \"mlp\"\nhidden = [64]\n"
                                       "[train]\nlocal-epochs = 30\n"
                                       "[strategy]\nname = \"scaffold\"\n"
                                       "[round]\ncohort = 6\nmin-updates = 4\nattempts-max = 1000\n"
                                       "[data]\ndataset = \"synthetic:rows=4000,features=64,"
                                       "classes=10\"\npartition = \"dirichlet:alpha=1\"\n"
                                       "hold-out = 0.1\n"
                                       "[evaluate]\nfederated-every = 3\n"
                                       "[network]\nlatency = \"lognormal:20ms,1\"\n"
                                       "bandwidth = \"uniform:200kB/s,5MB/s\"\n"
                                       "[nodes]\nstragglers = 0.2\ncrash-every = \"60s\"\n"
                                       "return-after = \"2s\"\n";
  }
  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }
  static std::string program(const std::string& name = "starling-coordinator") {
    return (testing::build_root() / "bin" / name).string();
  }
  std::vector<std::string> command(const std::string& out,
                                   const std::vector<std::string>& more = {},
                                   const std::string& threads = "1") const {
    std::vector<std::string> words{program(),   "simulate", path("job.toml").string(),
                                   "--clients", "8",        "--threads",
                                   threads,     "--out",    path(out).string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Every file by its path, but for what depends on the day.
  std::map<std::string, std::string> files(const std::string& out) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path(out))) {
      const std::string name = std::filesystem::relative(entry.path(), path(out)).string();
      if (!entry.is_regular_file()) continue;
      if (name == "report.html" || name == "SHA256SUMS") continue;  // of run.json
      if (name.ends_with(".SHA256SUMS.checked")) continue;          // of times of change
      const std::string text = read_text_file(entry.path(), 1 << 26).value();
      found[name] = name == "run.json" ? testing::timeless(text) : text;
    }
    return found;
  }
  void expect_same(const std::string& one, const std::string& other) const {
    const auto expected = files(one);
    const auto found = files(other);
    EXPECT_EQ(found.size(), expected.size());
    EXPECT_TRUE(found.contains("run.json") && found.contains("models/60.safetensors"));
    for (const auto& [name, content] : expected) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_TRUE(found.at(name) == content) << name;
    }
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(StoppedFederation, InterruptedAndKilledItEndsAsIfNothingHadBeen) {
  ASSERT_EQ(testing::run(command("whole")).exit_code, 0);
  {
    Process run(command("stopped"));
    ASSERT_TRUE(run.wait_for("[round 10/60]")) << run.output();
    run.signal(SIGINT);
    EXPECT_EQ(run.wait(), 128 + SIGINT);
    EXPECT_THAT(in_one_line(run.output()), HasSubstr("stopping at the end of the round"));
    EXPECT_THAT(in_one_line(run.output()), HasSubstr(": the same command goes on from there"));
    EXPECT_TRUE(std::filesystem::exists(path("stopped/checkpoint.state")));
  }
  // Its report can be made before it goes on.
  const auto report =
      testing::run({program("starling-gossip"), "report", path("stopped").string()});
  EXPECT_EQ(report.exit_code, 0) << report.output;
  EXPECT_THAT(in_one_line(report.output), HasSubstr("has not finished; the report ends at round"));
  const auto page = read_text_file(path("stopped/report.html"), 1 << 22);
  ASSERT_TRUE(page);
  EXPECT_THAT(*page, HasSubstr("Unfinished: this is what was measured until round"));
  {
    Process run(command("stopped", {}, "2"));
    ASSERT_TRUE(run.wait_for("goes on after round")) << run.output();
    ASSERT_TRUE(run.wait_for("[round 30/60]")) << run.output();
    EXPECT_EQ(run.output().find("[round 5/60]"), std::string::npos) << "said before";
    run.signal(SIGKILL);
    EXPECT_EQ(run.wait(), 128 + SIGKILL);
  }
  const auto other = testing::run(command("stopped", {"--learning-rate", "0.2"}));
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(in_one_line(other.output), HasSubstr("holds an unfinished run with other settings"));
  ASSERT_EQ(testing::run(command("stopped")).exit_code, 0);
  expect_same("whole", "stopped");
}

TEST_F(StoppedFederation, TheSameCommandTwiceAtATimeIsRefused) {
  Process run(command("out"));
  ASSERT_TRUE(run.wait_for("[round 5/60]")) << run.output();
  const auto second = testing::run(command("out"));
  EXPECT_NE(second.exit_code, 0);
  EXPECT_THAT(in_one_line(second.output), HasSubstr("another command writes a run into"));
  run.signal(SIGKILL);
  run.wait();
}

TEST_F(StoppedFederation, AStudyGoesOnInsideItsStoppedRun) {
  const std::vector<std::string> flags{"--seeds", "1..3"};
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
  {
    Process run(command("stopped", flags));
    ASSERT_TRUE(run.wait_for("goes on after round")) << run.output();
    run.signal(SIGKILL);
    EXPECT_EQ(run.wait(), 128 + SIGKILL);
  }
  ASSERT_EQ(testing::run(command("stopped", flags)).exit_code, 0);
  for (const char* seed : {"seed=1", "seed=2", "seed=3"}) {
    expect_same(std::string("whole/") + seed, std::string("stopped/") + seed);
  }
}

}  // namespace
}  // namespace starling
