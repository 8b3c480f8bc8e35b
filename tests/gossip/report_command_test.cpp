// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <sstream>

#include "core/base/durable_file.h"
#include "core/config/command_line.h"
#include "core/report/file_sums.h"
#include "gossip/tool/commands.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Answer {
  int code = 0;
  std::string out;
  std::string err;
};

Answer report(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"starling-gossip", "report"});
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  const SystemClock clock;
  std::ostringstream out;
  std::ostringstream err;
  CommandContext context{clock, out, err, {}};
  CLI::App app("", "starling-gossip");
  config::set_up(app, "0");
  add_report_command(app, context);
  const auto done = config::parse(app, words, out, err);
  const int code = done ? *done : context.run();
  return {code, out.str(), err.str()};
}

class ReportCommand : public ::testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& topology,
                  const std::string& seed = "1") {
    const auto path = directory_.path() / name;
    EXPECT_TRUE(make_directory(path));
    const std::string summary = R"({"nodes": 2, "seed": )" + seed +
                                R"(, "settings": {"topology.spec": ")" + topology +
                                R"(", "seed": ")" + seed + "\"}}";
    EXPECT_TRUE(write_durably(path / "summary.json", as_bytes(summary)));
    const std::string metrics =
        "{\"step\": 0, \"eval_accuracy\": 0.1, \"bytes_sent\": 0}\n"
        "{\"step\": 10, \"eval_accuracy\": 0.8125, \"bytes_sent\": 2000}\n";
    EXPECT_TRUE(write_durably(path / "metrics.jsonl", as_bytes(metrics)));
    return path.string();
  }

  starling::testing::TemporaryDirectory directory_;
};

TEST_F(ReportCommand, WritesThePageOfARunIntoItsDirectory) {
  const std::string path = run("a", "ring");
  const Answer answer = report({path});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("FINAL ACCURACY"));
  EXPECT_THAT(answer.out, HasSubstr("written: " + path + "/report.html"));
  EXPECT_TRUE(std::filesystem::exists(path + "/report.html"));
}

TEST_F(ReportCommand, SaysThatARunFailedAndWhy) {
  const std::string failed = run("a", "ring");
  const std::string record = R"({"failed": "the loss is not finite", "settings": {"seed": "1"}})";
  std::filesystem::remove(failed + "/summary.json");
  ASSERT_TRUE(write_durably(failed + "/unfinished.json", as_bytes(record)));
  const Answer alone = report({failed});
  EXPECT_EQ(alone.code, 0);
  EXPECT_EQ(alone.err,
            "note: " + failed + " failed: the loss is not finite; the report ends at step 10\n");
  EXPECT_THAT(*read_text_file(failed + "/report.html", 1 << 20),
              HasSubstr("Failed: the loss is not finite. This is what was measured until step 10"));
  run("b", "ring", "2");
  const Answer study = report({directory_.path().string()});
  EXPECT_EQ(study.code, 0);
  EXPECT_EQ(study.err, "note: a failed: the loss is not finite; it is left out\n");
}

TEST_F(ReportCommand, SaysWhoseLastModelARunLacks) {
  const std::string whole = run("a", "ring");
  const std::string lacking = run("b", "star");
  const std::string summary =
      R"({"nodes": 2, "incomplete": "1 of 2 peers did not finish, and the result is without them: )"
      R"(node-2 is silent at step 4", "settings": {"topology.spec": "star"}})";
  ASSERT_TRUE(write_durably(lacking + "/summary.json", as_bytes(summary)));
  ASSERT_EQ(report({lacking}).code, 0);
  EXPECT_THAT(*read_text_file(lacking + "/report.html", 1 << 20),
              HasSubstr("Incomplete: 1 of 2 peers did not finish, and the result is without them: "
                        "node-2 is silent at step 4."));
  const std::string page = (directory_.path() / "both.html").string();
  EXPECT_THAT(report({whole, lacking, "--out", page}).out, HasSubstr("(incomplete)"));
}

TEST_F(ReportCommand, SaysThatAFinishedRunLacksItsRecord) {
  const std::string path = run("a", "ring");
  const std::vector<std::string> names = {"metrics.jsonl"};
  ASSERT_TRUE(report::write_sums(path, names, "summary.json", "{}"));
  std::filesystem::remove(path + "/summary.json");
  const Answer answer = report({path});
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(answer.err, "error: " + path +
                            " holds a finished run that lacks its record, summary.json or "
                            "run.json: restore the file, or remove " +
                            path + " and run it again\n");
}

TEST_F(ReportCommand, SaysThatThereIsNoSuchDirectory) {
  const std::string missing = (directory_.path() / "missing").string();
  const Answer answer = report({missing});
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.err, "error: there is no directory " + missing + "\n");
}

TEST_F(ReportCommand, ComparesRunsAsJson) {
  const std::string page = (directory_.path() / "both.html").string();
  const Answer answer =
      report({run("a", "ring"), run("b", "star"), "--out", page, "--format", "json"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto value = boost::json::parse(answer.out);
  EXPECT_EQ(value.at("report").as_string(), page);
  EXPECT_EQ(value.at("target_accuracy").as_double(), 0.8);
  EXPECT_EQ(value.at("runs").at(1).at("name").as_string(), "star");
  EXPECT_EQ(value.at("runs").at(0).at("eval_accuracy").as_double(), 0.8125);
  EXPECT_EQ(value.at("runs").at(0).at("bytes_to_target").as_double(), 2000);
  EXPECT_TRUE(value.at("runs").at(0).at("consensus_distance").is_null());
  EXPECT_TRUE(std::filesystem::exists(page));
}

TEST_F(ReportCommand, TakesAStudyAndGroupsItsSeeds) {
  for (const char* seed : {"1", "2"}) {
    run(std::string("study/ring-") + seed, "ring", seed);
    run(std::string("study/star-") + seed, "star", seed);
  }
  const std::string study = (directory_.path() / "study").string();
  std::filesystem::remove(study + "/star-2/summary.json");
  const Answer answer = report({study, "--csv", "--svg"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "note: star-2 has not finished; it is left out\n");
  EXPECT_THAT(answer.out, HasSubstr("0.8125 (0.8125 to 0.8125)"));
  EXPECT_THAT(answer.out, HasSubstr("written: " + study + "/report.html, its curves in " + study +
                                    "/curves/\n"));
  EXPECT_TRUE(std::filesystem::exists(study + "/curves/accuracy-by-step.csv"));
  EXPECT_TRUE(std::filesystem::exists(study + "/curves/accuracy-by-step.svg"));
  const auto value = boost::json::parse(report({study, "--format", "json"}).out);
  EXPECT_EQ(value.at("runs").as_array().size(), 3);
  EXPECT_EQ(value.at("groups").at(0).at("name"), "ring");
  EXPECT_EQ(value.at("groups").at(0).at("directories").as_array().size(), 2);
  EXPECT_EQ(value.at("groups").at(0).at("eval_accuracy"), 0.8125);
  EXPECT_EQ(value.at("groups").at(0).at("eval_accuracy_best"), 0.8125);
  EXPECT_EQ(value.at("groups").at(0).at("steps_to_target").as_double(), 10);
}

// As the shell has "study/*".
TEST_F(ReportCommand, SkipsWhatElseStandsBesideTheRuns) {
  const std::string a = run("study/a", "ring");
  const std::string b = run("study/b", "star");
  const std::string curves = (directory_.path() / "study" / "curves").string();
  const std::string page = (directory_.path() / "page.html").string();
  ASSERT_TRUE(make_directory(curves));
  const Answer answer = report({a, b, curves, "--out", page});
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.err, "note: " + curves + " holds no run; it is left out\n");
  EXPECT_THAT(answer.out, HasSubstr("star"));
  const std::string nothing = (directory_.path() / "study" / "c").string();
  const Answer mistyped = report({a, nothing, "--out", page});
  EXPECT_EQ(mistyped.code, 2);
  EXPECT_THAT(mistyped.err, HasSubstr("there is no directory " + nothing));
  EXPECT_EQ(report({a, directory_.path().string() + "/study/curves/", "--out", page}).code, 0);
}

TEST_F(ReportCommand, LeavesOutADamagedRunAndShowsTheOthers) {
  const std::string a = run("a", "ring");
  const std::string b = run("b", "star");
  const std::string changed = run("c", "grid");
  const std::string page = (directory_.path() / "page.html").string();
  const std::string record = *read_text_file(changed + "/summary.json", 1 << 20);
  const std::vector<std::string> names = {"metrics.jsonl"};
  ASSERT_TRUE(starling::report::write_sums(changed, names, "summary.json", record));
  const std::string line = "{\"step\": 0, \"eval_accuracy\": 0.9}\n";
  ASSERT_TRUE(write_durably(changed + "/metrics.jsonl", as_bytes(line)));
  ASSERT_TRUE(write_durably(a + "/metrics.jsonl", as_bytes(line + "rubbish\n")));
  const std::string lost = run("d", "torus");
  std::filesystem::remove(lost + "/metrics.jsonl");
  const Answer answer = report({a, changed, lost, b, "--out", page});
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.err, HasSubstr("note: " + a + ": metrics.jsonl, line 2: not JSON"));
  EXPECT_THAT(answer.err, HasSubstr("note: " + changed +
                                    ": metrics.jsonl has changed since the run ended, or cannot be "
                                    "read; restore it, or remove " +
                                    changed + " and run it again; it is left out"));
  EXPECT_THAT(answer.err, HasSubstr("note: " + lost + ": cannot open " + lost + "/metrics.jsonl"));
  EXPECT_THAT(answer.out, HasSubstr("0.8125"));
  EXPECT_THAT(answer.out, Not(HasSubstr("0.9000")));
  const Answer alone = report({a});
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.err, HasSubstr("; restore the file, or remove " + a + " and run it again"));
  EXPECT_EQ(report({changed}).code, 1);
}

TEST_F(ReportCommand, APageThatCannotBeWrittenIsSaidSo) {
  const std::string path = run("a", "ring");
  const Answer directory = report({path, "--out", path});
  EXPECT_EQ(directory.code, 2);
  EXPECT_THAT(directory.err, HasSubstr("--out " + path + " is a directory; name a file in it"));
  const std::string pipe = (directory_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Answer replaced = report({path, "--out", pipe});
  EXPECT_EQ(replaced.code, 2);
  EXPECT_THAT(replaced.err, HasSubstr("--out " + pipe + " is no regular file: name a new file"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  const Answer missing = report({path, "--out", path + "/none/page.html"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("there is no directory " + path + "/none to write"));
}

TEST_F(ReportCommand, SaysThatALaunchedRunHasNotFinished) {
  const std::string path = run("a", "ring");
  std::filesystem::remove(path + "/summary.json");
  const Answer answer = report({path});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr(path + " holds a run that has not finished"));
}

TEST_F(ReportCommand, CurvesAreWrittenOnlyWhereAskedFor) {
  const std::string path = run("a", "ring");
  ASSERT_EQ(report({path}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(path + "/curves"));
  ASSERT_EQ(report({path, "--svg"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(path + "/curves/accuracy-by-step.svg"));
  EXPECT_FALSE(std::filesystem::exists(path + "/curves/accuracy-by-step.csv"));
}

TEST_F(ReportCommand, SaysWhatIsWrong) {
  const Answer none = report({directory_.path().string()});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("holds no run"));
  const std::string path = run("a", "ring");
  ASSERT_TRUE(
      write_durably(path + "/metrics.jsonl", as_bytes(std::string("{\"step\": 0}\n{\"st"))));
  const Answer broken = report({path});
  EXPECT_EQ(broken.code, 1);
  EXPECT_THAT(broken.err, HasSubstr(path + ": metrics.jsonl, line 2: the JSON breaks off"));
  EXPECT_EQ(report({}).code, 2);
}

}  // namespace
}  // namespace starling::gossip
