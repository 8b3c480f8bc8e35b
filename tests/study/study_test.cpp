// SPDX-License-Identifier: Apache-2.0
// What a study does around its runs, which here only write what a report needs.
#include "core/study/study.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <boost/json.hpp>
#include <csignal>
#include <fstream>
#include <sstream>

#include "core/base/durable_file.h"
#include "core/base/file_descriptor.h"
#include "core/report/run_directory.h"
#include "tests/support/temporary_directory.h"

namespace starling::study {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct TestOptions {
  std::uint64_t seed = 1;
  int steps = 10;
  std::string topology = "ring";
};

template <class V>
void describe(V& visit, TestOptions& o) {
  visit("seed", o.seed, FieldInfo{});
  visit("steps", o.steps, FieldInfo{.min = 1, .max = 100});
  visit("topology", o.topology, FieldInfo{});
}

class StudyTest : public ::testing::Test {
 protected:
  StudyTest() { binder_.bind("", options_); }

  // The exit code; `out_` and `err_` hold what was said.
  int run(std::optional<std::string> seeds, std::vector<std::string> sweeps = {}) {
    std::ostringstream out;
    std::ostringstream err;
    const Settings base = binder_.settings();
    ran_.clear();
    const auto code = [&]() -> Result<config::ExitCode> {
      STARLING_ASSIGN(const Plan plan,
                      make_plan({.seeds = std::move(seeds), .sweeps = std::move(sweeps)}, binder_));
      const Program program{.name = "test",
                            .configure = [&](const Settings& settings) -> Result<void> {
                              STARLING_TRY(binder_.set(base));
                              return binder_.set(settings);
                            },
                            .check = [&] { return check(); },
                            .settings = [&] { return binder_.settings(); },
                            .run = [&](const std::filesystem::path& directory,
                                       RunDisplay& display) { return perform(directory, display); },
                            .files = {"metrics.jsonl", "summary.json", report::kUnfinishedFile}};
      return run_study(
          plan, program, {.out = study_, .format = format_},
          {.clock = clock_, .out = out, .err = err, .out_terminal = {}, .err_terminal = {}});
    }();
    EXPECT_TRUE(binder_.set(base));
    const int result = code ? static_cast<int>(*code) : config::report(code.error(), err);
    out_ = out.str();
    err_ = err.str();
    return result;
  }

  Result<void> check() const {
    if (options_.topology == "rign") return wrong_setting("bad", "unknown topology 'rign'");
    if (options_.seed < accepted_from_) return wrong_setting("bad", "no graph of this seed");
    if (options_.topology == "tree" && options_.steps > 5) {
      return wrong_setting("bad", "a tree takes at most 5 steps");
    }
    return {};
  }

  Result<std::string> perform(const std::filesystem::path& directory, RunDisplay& display) {
    ran_.push_back(directory.filename().string());
    EXPECT_TRUE(!std::filesystem::exists(directory) ||
                std::filesystem::exists(directory / report::kUnfinishedFile))
        << "a run begins with nothing, or goes on";
    std::filesystem::create_directories(directory);
    std::ofstream(directory / "metrics.jsonl")
        << fmt::format("{{\"step\":{},\"eval_accuracy\":0.{}}}\n", options_.steps, options_.seed);
    display.update(0.5);
    display.log().info("half is done");
    if (options_.seed == interrupt_at_) std::raise(SIGINT);
    if (options_.seed == 1 && meanwhile_) meanwhile_();
    STARLING_TRY(check());  // as a run does
    if (options_.seed == diverges_at_) return rejected("diverged", "the run diverged");
    if (options_.seed == too_large_at_) throw std::bad_alloc();
    json::object settings;
    for (const auto& [key, value] : binder_.settings()) settings[key] = value;
    const json::value summary{{"program", "test"},
                              {"version", version_},
                              {"settings", settings},
                              {"seed", options_.seed}};
    STARLING_TRY(write_durably(directory / "summary.json", as_bytes(json::serialize(summary))));
    return fmt::format("accuracy 0.{}", options_.seed);
  }

  json::value study_json() const {
    return json::parse(read_text_file(study_ / "study.json", 1 << 20).value());
  }

  testing::TemporaryDirectory directory_;
  std::filesystem::path study_ = directory_.path() / "study";
  SystemClock clock_;
  TestOptions options_;
  config::Binder binder_;
  config::OutputFormat format_ = config::OutputFormat::kText;
  std::uint64_t interrupt_at_ = 0, diverges_at_ = 0, too_large_at_ = 0, accepted_from_ = 0;
  std::string version_ = STARLING_VERSION;  // that runs record
  std::function<void()> meanwhile_;         // while the run of seed 1 is at work
  std::vector<std::string> ran_;
  std::string out_, err_;
};

TEST_F(StudyTest, ShowsItsPlanRunsAllAndReports) {
  EXPECT_EQ(run("1..2", {"topology=ring,star"}), 0) << err_;
  EXPECT_THAT(ran_, ElementsAre("topology=ring,seed=1", "topology=ring,seed=2",
                                "topology=star,seed=1", "topology=star,seed=2"));
  EXPECT_THAT(err_, HasSubstr("4 runs: topology (2) x seed (2)\none after the other, in "));
  EXPECT_THAT(err_, HasSubstr("topology=ring,seed=1: half is done\n"));
  EXPECT_THAT(err_, HasSubstr("[3/4] topology=star,seed=1  accuracy 0.1  "));
  EXPECT_THAT(out_, HasSubstr("star"));
  EXPECT_THAT(out_, HasSubstr("0.1500 (0.1000 to 0.2000)"));
  EXPECT_THAT(out_, HasSubstr("written: " + (study_ / "report.html").string()));
  for (const char* name : {"report.html", "study.json", "curves/accuracy-by-step.csv",
                           "curves/accuracy-by-step.svg"}) {
    EXPECT_TRUE(std::filesystem::exists(study_ / name)) << name;
  }
  EXPECT_EQ(study_json().at("runs").at(3).at("state"), "finished");
}

TEST_F(StudyTest, RepeatedItSkipsWhatIsFinishedAndBeginsTheRestAnew) {
  ASSERT_EQ(run("1..3"), 0) << err_;
  const auto kept = std::filesystem::last_write_time(study_ / "seed=1" / "summary.json");
  std::filesystem::remove(study_ / "seed=2" / "summary.json");  // as after a kill
  std::ofstream(study_ / "seed=2" / ".summary.json.ab.tmp") << "{";
  EXPECT_EQ(run("1..4"), 0) << err_;
  EXPECT_THAT(ran_, ElementsAre("seed=2", "seed=4"));
  EXPECT_THAT(err_, HasSubstr("2 of them finished before, 2 to do"));
  EXPECT_EQ(std::filesystem::last_write_time(study_ / "seed=1" / "summary.json"), kept);
  EXPECT_FALSE(std::filesystem::exists(study_ / "seed=2" / ".summary.json.ab.tmp"));
  EXPECT_EQ(run("1..4"), 0) << err_;
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_THAT(out_, HasSubstr("written: "));
}

TEST_F(StudyTest, ARunOfOtherSettingsIsNeitherTakenNorRemoved) {
  ASSERT_EQ(run("1..2"), 0) << err_;
  options_.steps = 20;
  EXPECT_EQ(run("1..3"), 1);
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_THAT(err_, HasSubstr("seed=1 holds a finished run with other settings (steps is 10 there "
                              "and 20 here): name a new directory with --out"));
}

TEST_F(StudyTest, AnUnfinishedRunOfOtherSettingsIsNotRemoved) {
  version_ = "0.0.1";
  ASSERT_EQ(run("2"), 0) << err_;
  version_ = STARLING_VERSION;
  const auto record = study_ / "seed=2" / report::kUnfinishedFile;
  std::filesystem::rename(study_ / "seed=2" / "summary.json", record);
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_THAT(err_, HasSubstr("seed=2 holds an unfinished run with other settings (it is of test "
                              "0.0.1, and this is test " STARLING_VERSION "): name a new "));
  std::ofstream(record) << R"({"seed": 2, "settings": {"seed": "2"}})";
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_THAT(err_, HasSubstr("(it is of an earlier version)"));
  std::filesystem::remove_all(study_ / "seed=2");
  ASSERT_EQ(run("2"), 0) << err_;
  std::filesystem::rename(study_ / "seed=2" / "summary.json", record);
  options_.steps = 20;
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_THAT(err_, HasSubstr("seed=2 holds an unfinished run with other settings (steps is 10 "
                              "there and 20 here): name a new directory with --out"));
  EXPECT_TRUE(std::filesystem::exists(record));
  options_.steps = 10;
  EXPECT_EQ(run("1..2"), 0) << err_;
  EXPECT_THAT(ran_, ElementsAre("seed=1", "seed=2"));
}

TEST_F(StudyTest, SaysThatTheDirectoryHoldsRunsOfAnotherGrid) {
  ASSERT_EQ(run("1..2"), 0) << err_;
  EXPECT_THAT(err_, Not(HasSubstr("not of this grid")));
  ASSERT_EQ(run("1..3"), 0) << err_;
  EXPECT_THAT(err_, Not(HasSubstr("not of this grid"))) << "the grid has grown";
  ASSERT_EQ(run("1..2", {"topology=star"}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("holds 3 runs that are not of this grid, and the report shows them"));
}

TEST_F(StudyTest, ARunThatAnotherVersionFinishedIsSkippedAndSaid) {
  version_ = "0.0.1";
  ASSERT_EQ(run("1"), 0) << err_;
  version_ = STARLING_VERSION;
  ASSERT_EQ(run("1..2"), 0) << err_;
  EXPECT_THAT(ran_, ElementsAre("seed=2"));
  EXPECT_THAT(err_, HasSubstr("1 of these by Starling 0.0.1, and this is " STARLING_VERSION ": "));
  std::ostringstream out;
  options_.seed = 1;
  EXPECT_TRUE(skip_finished(study_ / "seed=1", binder_.settings(), format_, out, out).value());
  EXPECT_THAT(out.str(), HasSubstr("holds this run, finished by Starling 0.0.1 (this is "));
  std::ostringstream here;
  options_.seed = 2;
  EXPECT_TRUE(skip_finished(study_ / "seed=2", binder_.settings(), format_, here, here).value());
  EXPECT_THAT(here.str(), HasSubstr("holds this run, finished: "));
}

TEST_F(StudyTest, AFileInThePlaceOfARunIsNotRemoved) {
  ASSERT_EQ(run("1"), 0) << err_;
  std::ofstream(study_ / "seed=2") << "mine";
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_THAT(err_, HasSubstr("seed=2 is a file, and a run is to be written into a directory of "
                              "this name"));
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_EQ(read_text_file(study_ / "seed=2", 100).value(), "mine");
  std::filesystem::remove(study_ / "seed=2");
  std::filesystem::create_symlink("nowhere", study_ / "seed=2");
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_TRUE(std::filesystem::is_symlink(study_ / "seed=2"));
}

TEST_F(StudyTest, TemporariesThatAKillLeftAreRemoved) {
  ASSERT_EQ(run("1"), 0) << err_;
  for (const char* left : {".study.json.ab.tmp", "curves/.accuracy-by-step.csv.ab.tmp"}) {
    std::ofstream(study_ / left) << "{";
  }
  EXPECT_EQ(run("1..2"), 0) << err_;
  EXPECT_THAT(ran_, ElementsAre("seed=2"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(study_)) {
    EXPECT_FALSE(is_temporary(entry.path().filename().string())) << entry.path();
  }
}

TEST_F(StudyTest, ARunThatAnotherCommandFinishesMeanwhileIsKept) {
  study_ = directory_.path() / "other";
  ASSERT_EQ(run("2"), 0) << err_;
  const auto finished = study_ / "seed=2";
  study_ = directory_.path() / "study";
  meanwhile_ = [&, finished] { std::filesystem::copy(finished, study_ / "seed=2"); };
  EXPECT_EQ(run("1..2"), 0) << err_;
  EXPECT_THAT(ran_, ElementsAre("seed=1"));
  EXPECT_THAT(err_, HasSubstr("seed=2  finished by another command"));
}

TEST_F(StudyTest, ARunThatAnotherCommandWritesIsNotRemoved) {
  ASSERT_EQ(run("1..2"), 0) << err_;
  std::filesystem::remove(study_ / "seed=2" / "summary.json");
  const FileDescriptor other(
      ::open((study_ / "seed=2").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_THAT(err_, HasSubstr("another command writes a run into "));
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(study_ / "seed=2" / "metrics.jsonl"));
}

TEST_F(StudyTest, AKeyThatOnlyTheFinishedRunHasIsADifference) {
  ASSERT_EQ(run("1"), 0) << err_;
  const json::value summary = json::parse(
      R"({"seed": 1, "settings": {"seed": "1", "steps": "10", "topology": "ring", "real": "true"}})");
  ASSERT_TRUE(
      write_durably(study_ / "seed=1" / "summary.json", as_bytes(json::serialize(summary))));
  EXPECT_EQ(run("1"), 1);
  EXPECT_THAT(err_, HasSubstr("(real is true there and not set here)"));
}

TEST_F(StudyTest, FilesOfOthersAreLeftAlone) {
  std::filesystem::create_directories(study_ / "seed=2");
  std::ofstream(study_ / "seed=2" / "thesis.tex") << "mine";
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_THAT(err_, HasSubstr("study is not empty and holds no study: name a new directory"));
  std::ofstream(study_ / "study.json") << "{}";
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_THAT(err_, HasSubstr("seed=2 holds thesis.tex, which is not of a run"));
  EXPECT_THAT(ran_, IsEmpty());
}

TEST_F(StudyTest, AFailingRunIsNamedAndTheOthersGoOn) {
  diverges_at_ = 2;
  too_large_at_ = 3;
  EXPECT_EQ(run("1..4"), 1);
  EXPECT_EQ(ran_.size(), 4U);
  EXPECT_THAT(err_, HasSubstr("[2/4] seed=2  failed: the run diverged\n"));
  EXPECT_THAT(err_, HasSubstr("[3/4] seed=3  failed: there is not enough memory for this run\n"));
  EXPECT_THAT(err_, HasSubstr("error: 2 of 4 runs failed: seed=2: the run diverged; study.json "));
  EXPECT_EQ(study_json().at("runs").at(1).at("state"), "failed");
  EXPECT_EQ(study_json().at("runs").at(1).at("reason"), "the run diverged");
  EXPECT_TRUE(std::filesystem::exists(study_ / "report.html")) << "of those that ended";
  diverges_at_ = 0;
  EXPECT_EQ(run("1..2"), 0) << err_;
  EXPECT_THAT(ran_, ElementsAre("seed=2"));
}

TEST_F(StudyTest, AllRunsFailing) {
  diverges_at_ = 1;
  EXPECT_EQ(run("1"), 1);
  EXPECT_THAT(err_, HasSubstr("error: 1 of 1 run failed: seed=1: the run diverged\n"));
  EXPECT_FALSE(std::filesystem::exists(study_ / "report.html"));
}

TEST_F(StudyTest, AValueThatNoRunCanHaveIsRefusedBeforeAnythingRuns) {
  EXPECT_EQ(run("1..2", {"topology=ring,rign"}), 2);
  EXPECT_EQ(err_, "error: --sweep topology=rign: unknown topology 'rign'\n");
  options_.topology = "rign";
  EXPECT_EQ(run("1..2"), 2);
  EXPECT_EQ(err_, "error: unknown topology 'rign'\n");
  EXPECT_THAT(ran_, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(study_));
}

// What was cut at its comma reads like the rest of the value before it.
TEST_F(StudyTest, AValueThatWasCutAtItsCommaIsToStandInQuotes) {
  accepted_from_ = 9;
  EXPECT_EQ(run(std::nullopt, {"topology=torus:4,0.5"}), 2);
  EXPECT_THAT(err_,
              HasSubstr("no graph of this seed; a value with a comma stands in double quotes"));
  EXPECT_EQ(run(std::nullopt, {"topology=ring,torus:4"}), 2);
  EXPECT_EQ(err_, "error: no graph of this seed\n");
}

TEST_F(StudyTest, ACombinationThatIsRefusedFailsAlone) {
  EXPECT_EQ(run(std::nullopt, {"topology=ring,tree", "steps=5,10"}), 1);
  EXPECT_EQ(ran_.size(), 4U);
  EXPECT_THAT(err_, HasSubstr("topology=tree,steps=10  failed: a tree takes at most 5 steps"));
}

TEST_F(StudyTest, ASeedThatIsRefusedFailsAlone) {
  accepted_from_ = 3;
  EXPECT_EQ(run("1..4"), 1);
  EXPECT_THAT(err_, HasSubstr("error: 2 of 4 runs failed: seed=1: no graph of this seed"));
  EXPECT_EQ(study_json().at("runs").at(2).at("state"), "finished");
  EXPECT_EQ(run("1..2"), 2) << "a study without any";
  EXPECT_EQ(err_, "error: no graph of this seed\n");
}

TEST_F(StudyTest, NeedsADirectory) {
  study_.clear();
  EXPECT_EQ(run("1..2"), 2);
  EXPECT_THAT(err_, HasSubstr("say where with --out DIR"));
}

TEST_F(StudyTest, TwoCommandsDoNotShareADirectory) {
  ASSERT_TRUE(make_directory(study_));
  const FileDescriptor other(::open(study_.c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_EQ(run("1..2"), 1);
  EXPECT_THAT(err_, HasSubstr("another command runs a study in "));
  EXPECT_THAT(ran_, IsEmpty());
}

TEST_F(StudyTest, AnswersInJson) {
  format_ = config::OutputFormat::kJson;
  ASSERT_EQ(run("1..2"), 0) << err_;
  const json::value answer = json::parse(out_);
  EXPECT_EQ(answer.at("runs").at(1).at("directory"), "seed=2");
  EXPECT_EQ(answer.at("runs").at(1).at("settings").at("seed"), "2");
  EXPECT_EQ(answer.at("axes").at(0).at("key"), "seed");
  EXPECT_EQ(answer.at("report").as_string(), (study_ / "report.html").string());
}

TEST_F(StudyTest, CtrlCEndsItAtOnceAndSaysHowToGoOn) {
  interrupt_at_ = 2;
  EXPECT_EXIT(run("1..3"), ::testing::KilledBySignal(SIGINT),
              "stopped: 1 of 3 runs finished; the same command goes on with the others");
  EXPECT_EQ(study_json().at("runs").at(0).at("state"), "finished");
  EXPECT_EQ(study_json().at("runs").at(1).at("state"), "open");
  interrupt_at_ = 0;
  EXPECT_EQ(run("1..3"), 0) << err_;
  EXPECT_THAT(ran_, ElementsAre("seed=2", "seed=3"));
}

}  // namespace
}  // namespace starling::study
