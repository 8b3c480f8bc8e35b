// SPDX-License-Identifier: Apache-2.0
#include "core/config/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "core/base/durable_file.h"
#include "core/config/binder.h"
#include "tests/config/test_options.h"
#include "tests/support/temporary_directory.h"

namespace starling::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A program with two commands, one of them configured.
class CommandLine : public ::testing::Test {
 protected:
  CommandLine() {
    options_.bind(binder_);
    set_up(app_, "1.2.3");
    add_format(app_, format_);
    app_.require_subcommand(1);
    run_ = app_.add_subcommand("simulate", "in one process");
    run_->add_option("--out", out_directory_, "where results go");
    binder_.add_config(*run_);
    binder_.add_flags(*run_);
    app_.add_subcommand("status", "what is going on");
  }

  std::optional<int> parse(std::vector<std::string> words) {
    words.insert(words.begin(), "starling-test");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    out_.str("");
    err_.str("");
    return config::parse(app_, arguments, out_, err_);
  }
  // The sentence about flags that parse but do not hold.
  std::string refusal(std::vector<std::string> words) {
    words.insert(words.begin(), "simulate");
    EXPECT_EQ(parse(words), std::nullopt) << err_.str();
    const auto result = binder_.apply();
    return result ? "accepted" : result.error().code() + ": " + result.error().message();
  }

  testing::AllOptions options_;
  Binder binder_;
  CLI::App app_{"A test", "starling-test"};
  CLI::App* run_ = nullptr;
  OutputFormat format_ = OutputFormat::kText;
  std::string out_directory_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(CommandLine, EveryKeyIsAFlagAndItsLastWordWhereUnique) {
  EXPECT_EQ(refusal({"--train.local-epochs", "4", "--learning-rate", "1e-3", "--hidden", "64,32",
                     "--shuffle", "false", "--deadline=5m", "--name", "a b", "--local-steps", "3"}),
            "accepted");
  EXPECT_EQ(options_.train.local_epochs, 4);
  EXPECT_EQ(options_.train.learning_rate, 1e-3);
  EXPECT_THAT(options_.train.hidden, ElementsAre(64, 32));
  EXPECT_FALSE(options_.train.shuffle);
  EXPECT_EQ(options_.round.deadline, std::chrono::minutes(5));
  EXPECT_EQ(options_.job.name, "a b");
  EXPECT_EQ(options_.train.local_steps, 3);
}

TEST_F(CommandLine, ASwitchNeedsNoValue) {
  options_.train.shuffle = false;
  EXPECT_EQ(refusal({"--shuffle", "--local-steps", "3"}), "accepted");
  EXPECT_TRUE(options_.train.shuffle);
  EXPECT_EQ(options_.train.local_steps, 3) << "the flag after it is not its value";
  EXPECT_EQ(refusal({"--train.shuffle=false"}), "accepted");
  EXPECT_FALSE(options_.train.shuffle);
  EXPECT_EQ(refusal({"--shuffle"}), "accepted") << "at the end of the line";
  EXPECT_TRUE(options_.train.shuffle);
  EXPECT_THAT(refusal({"--shuffle", "maybe"}), HasSubstr("--train.shuffle = 'maybe'"));
}

TEST_F(CommandLine, AnAmbiguousLastWordIsTheKeyOfThatName) {
  EXPECT_EQ(refusal({"--seed", "7", "--round.seed", "8"}), "accepted");
  EXPECT_EQ(options_.job.seed, 7U);
  EXPECT_EQ(options_.round.seed, 8U);
}

TEST_F(CommandLine, FlagsWinOverTheFileWhereverTheyStand) {
  starling::testing::TemporaryDirectory directory;
  const auto path = directory.path() / "job.toml";
  std::ofstream(path) << "seed = 2\n[train]\nlocal-epochs = 9\n";
  EXPECT_EQ(refusal({"--local-epochs", "4", "--config", path.string()}), "accepted");
  EXPECT_EQ(options_.train.local_epochs, 4);
  EXPECT_EQ(options_.job.seed, 2U);
}

TEST_F(CommandLine, AFlagIsGivenOnce) {
  EXPECT_EQ(parse({"simulate", "--train.local-epochs", "4", "--local-epochs", "6"}), 2);
  EXPECT_THAT(err_.str(),
              HasSubstr("error: the flag --train.local-epochs is given more than once"));
}

TEST_F(CommandLine, KnowsWhichKeysFlagsSay) {
  EXPECT_EQ(refusal({"--local-epochs", "4"}), "accepted");
  EXPECT_TRUE(binder_.says_by_flag("train.local-epochs"));
  EXPECT_FALSE(binder_.says_by_flag("seed"));
  binder_.note_flag("seed");
  EXPECT_TRUE(binder_.says_by_flag("seed"));
}

TEST_F(CommandLine, NegativeNumbersAreValuesNotFlags) {
  EXPECT_THAT(refusal({"--learning-rate", "-1"}),
              HasSubstr("setting-invalid: --train.learning-rate = '-1' is out of range; it must be "
                        "at least 0"));
}

TEST_F(CommandLine, FindsTheKeyOfAShortFlag) {
  EXPECT_EQ(binder_.key_of("train.local-epochs").value(), "train.local-epochs");
  EXPECT_EQ(binder_.key_of("local-epochs").value(), "train.local-epochs");
  EXPECT_EQ(binder_.key_of("seed").value(), "seed");
  for (const char* word : {"", "train", "local-epoch", "out"}) {
    EXPECT_EQ(binder_.key_of(word).error().code(), "unknown-key") << word;
  }
}

TEST_F(CommandLine, ASweepTakesOneWordAndMayStandSeveralTimes) {
  StudyFlags study;
  std::string file;
  add_study_flags(*run_, study);
  run_->add_option("file", file, "");
  ASSERT_EQ(parse({"simulate", "--sweep", "a=1,2", "--seeds", "1..3", "--sweep", "b=3", "net"}),
            std::nullopt)
      << err_.str();
  EXPECT_THAT(study.sweeps, ElementsAre("a=1,2", "b=3"));
  EXPECT_EQ(study.seeds, "1..3");
  EXPECT_EQ(file, "net");
  EXPECT_TRUE(study.wanted());
  EXPECT_FALSE(StudyFlags().wanted());
}

TEST_F(CommandLine, SaysHowAListIsWritten) {
  for (const char* list : {"[200,100]", "200x100", "200 100"}) {
    EXPECT_THAT(refusal({"--hidden", list}), HasSubstr("commas between them, such as 200,100"));
  }
}

TEST_F(CommandLine, AnEmptyValueIsAnEmptyList) {
  EXPECT_EQ(refusal({"--hidden", ""}), "accepted");
  EXPECT_TRUE(options_.train.hidden.empty());
}

TEST_F(CommandLine, HelpShowsDefaultsAndRanges) {
  EXPECT_EQ(parse({"simulate", "--help"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("--train.local-epochs,--local-epochs VALUE [2]"));
  EXPECT_THAT(out_.str(), HasSubstr("passes over the data (1 to 1000 epochs)"));
  EXPECT_THAT(out_.str(), HasSubstr("--train.shuffle,--shuffle [VALUE] [true]"));
  EXPECT_THAT(out_.str(), HasSubstr("[train]"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("--round.seed,--seed")));
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(parse({"--version"}), 0);
  EXPECT_EQ(out_.str(), "starling-test 1.2.3\n");
}

TEST_F(CommandLine, WrongUseEndsWithTwoAndASentence) {
  EXPECT_EQ(parse({"simulate", "--local-epoch", "3"}), 2);
  EXPECT_EQ(err_.str(),
            "error: unknown flag '--local-epoch' of starling-test simulate; did you mean "
            "'--local-epochs'? (see starling-test simulate --help)\n");
  EXPECT_EQ(parse({"simulat"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("unknown command 'simulat' of starling-test; did you mean "
                                    "'simulate'?"));
  EXPECT_EQ(parse({}), 2);
  EXPECT_EQ(err_.str(), "error: starling-test needs a command (see starling-test --help)\n");
  EXPECT_EQ(parse({"simulate", "--hidden"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("error: the flag --train.hidden needs one value (see "));
  EXPECT_EQ(parse({"simulate", "--out", "a", "--out", "b"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("error: the flag --out is given more than once (see "));
  EXPECT_EQ(parse({"simulate", "--hidden", "200", "100"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("'100' of starling-test simulate; a list is one argument"));
  EXPECT_EQ(parse({"simulate", "--train", "x"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("'--train' of starling-test simulate is a section of settings; "
                                    "write one of its keys, such as --train.local-epochs"));
  EXPECT_EQ(parse({"simulate", "extra"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("unknown argument 'extra' of starling-test simulate"));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(CommandLine, FormatIsTextOrJson) {
  EXPECT_EQ(parse({"--format", "json", "status"}), std::nullopt);
  EXPECT_EQ(format_, OutputFormat::kJson);
  EXPECT_EQ(parse({"--format", "xml", "status"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("xml"));
}

// What has which category, commands show by the codes with which they end: see
// tests/coordinator/commands_test.cpp, tests/gossip/simulate_command_test.cpp and
// tests/edge_client/start_command_test.cpp.
TEST(ExitCode, FollowsTheCategory) {
  EXPECT_EQ(exit_code(internal("io-error", "x")), ExitCode::kFailed);
  EXPECT_EQ(exit_code(usage_error("x")), ExitCode::kUsage);
  EXPECT_EQ(exit_code(timed_out("deadline", "x")), ExitCode::kTimedOut);
  EXPECT_EQ(exit_code(not_connected("cannot-connect", "x")), ExitCode::kNotConnected);
  EXPECT_EQ(exit_code(not_authorised("certificate-expired", "x")), ExitCode::kNotConnected);
  EXPECT_EQ(exit_code(rejected("deadline", "x")), ExitCode::kFailed) << "whatever its name";
  std::ostringstream err;
  EXPECT_EQ(report(rejected("dataset-missing", "there is no file a.csv"), err), 1);
  EXPECT_EQ(err.str(), "error: there is no file a.csv\n");
  EXPECT_EQ(report(Result<void>(), err), 0);
}

// A service tries again by itself, a command does not.
TEST(Report, SaysToRunTheCommandAgainOnceADiskHasRoom) {
  errno = ENOSPC;
  std::ostringstream err;
  report(file_error("write", "a/b"), err);
  EXPECT_EQ(err.str(),
            "error: cannot write a/b: No space left on device; free some space and run the "
            "command again\n");
}

}  // namespace
}  // namespace starling::config
