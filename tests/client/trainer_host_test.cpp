// SPDX-License-Identifier: Apache-2.0
// Trainers that misbehave in every way that we know, as real processes. Nothing sleeps; what ends
// by a deadline has a short one.
#include "core/client/trainer_host.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <thread>

#include "core/base/file_descriptor.h"
#include "core/base/subprocess.h"
#include "tests/client/fake_trainer.h"

namespace starling::client {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::size_t kValues = 5;  // of the fake trainer's model

TrainerTask task_of(const std::string& settings = "{}") {
  return {.client = "cam-7",
          .round = 1,
          .rounds = 2,
          .seed = 3,
          .train = R"({"learning-rate": 0.1, "batch-size": 64, "local-steps": 0})",
          .settings = settings};
}

Result<TrainerAnswer> fit(FakeTrainer& trainer, const std::string& settings = "{}") {
  std::vector<float> parameters(kValues, 0.5F);
  return trainer.host().run(TrainerOperation::kFit, task_of(settings), {parameters, parameters},
                            trainer.stop);
}

TEST(TrainerHost, DescribesItselfAndDoesTasks) {
  FakeTrainer trainer("honest");
  const auto description = trainer.host().describe("{}", trainer.stop);
  ASSERT_TRUE(description) << description.error().message();
  EXPECT_EQ(description->name, "the trainer 'fake.py'");
  EXPECT_EQ(description->rows, 40U);
  EXPECT_EQ(description->held_out, 4U);
  EXPECT_EQ(description->operations.size(), 4U);
  EXPECT_EQ(description->layout->size(), kValues);
  EXPECT_TRUE(std::filesystem::is_directory(trainer.options.directory));

  std::vector<float> vector(kValues);
  const auto made =
      trainer.host().run(TrainerOperation::kInitialize, task_of(), {{}, vector}, trainer.stop);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_THAT(vector, ElementsAre(0.5F, 7, 0.25F, 0.25F, 0.25F));

  const auto trained = fit(trainer);
  ASSERT_TRUE(trained) << trained.error().message();
  EXPECT_EQ(trained->weight, 40);
  EXPECT_GT(trained->loss, 0);
  EXPECT_EQ(trained->steps, 1U);

  const auto found =
      trainer.host().run(TrainerOperation::kEvaluate, task_of(), {vector, {}}, trainer.stop);
  EXPECT_EQ(found->accuracy, 0.75);
  std::vector<float> gradient(kValues);
  const auto step = trainer.host().run(TrainerOperation::kGradient, task_of(), {vector, gradient},
                                       trainer.stop, 0);
  EXPECT_EQ(step->weight, 40);
  EXPECT_NE(gradient[0], 0);
  const auto loss_only =
      trainer.host().run(TrainerOperation::kGradient, task_of(), {vector, {}}, trainer.stop);
  EXPECT_EQ(loss_only->loss, step->loss);
  trainer.host().stop();
  EXPECT_TRUE(all_have_ended(trainer.directory.path()));
  EXPECT_TRUE(fit(trainer)) << "stopped, it is started again when it is needed";
}

TEST(TrainerHost, ALargerModelHasRoomToo) {
  FakeTrainer trainer("large-results");
  for (const std::size_t size : {std::size_t{5}, std::size_t{300'001}, std::size_t{7}}) {
    std::vector<float> vector(size, 2.0F);
    const auto answer =
        trainer.host().run(TrainerOperation::kFit, task_of(), {vector, vector}, trainer.stop);
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(vector, std::vector<float>(size, 3.0F));
  }
}

TEST(TrainerHost, OtherSettingsAndClientsAreDescribedOnTheirOwn) {
  FakeTrainer trainer("rows-of-clients");
  EXPECT_EQ(trainer.host().describe("{}", trainer.stop)->rows, 0U);
  EXPECT_EQ(trainer.host().describe("{}", trainer.stop, "cam-7")->rows, 40U);
  EXPECT_EQ(trainer.host().describe("{}", trainer.stop)->rows, 0U);
  const auto refused = trainer.host().describe(R"({"refuse": 1})", trainer.stop);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(),
            rejected("bad-settings", "the trainer says: these\\x1b settings\\nare refused"));
  EXPECT_TRUE(fit(trainer)) << "and goes on with those that it takes";
  EXPECT_EQ(trainer.host().describe("[]", trainer.stop).error().code(), "setting-invalid");
}

TEST(TrainerHost, WhatItDoesNotOfferIsRefused) {
  FakeTrainer trainer("fit-only");
  std::vector<float> vector(kValues);
  const auto answer =
      trainer.host().run(TrainerOperation::kGradient, task_of(), {vector, vector}, trainer.stop, 0);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error(),
            unsupported("unsupported-operation",
                        "the trainer 'fake.py' does not offer 'gradient', which this run needs of "
                        "it; it offers fit"));
}

struct Fault {
  std::string mode;
  std::string code;
  std::string sentence;  // begins with it
  ErrorKind kind = ErrorKind::kRejected;
};

class TrainerFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(TrainerFaults, FailTheirTaskByNameAndNoOther) {
  const Fault& fault = GetParam();
  FakeTrainer trainer(fault.mode);
  if (fault.code == "trainer-deadline") trainer.options.trainer.task_deadline = milliseconds(1500);
  if (fault.code == "trainer-memory") trainer.options.trainer.memory_max = 150;
  const auto failed = fit(trainer);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), fault.code) << failed.error().message();
  EXPECT_THAT(failed.error().message(), StartsWith(fault.sentence));
  EXPECT_EQ(failed.error().kind(), fault.kind);
  const auto next = fit(trainer);
  EXPECT_TRUE(next) << next.error().message();
  trainer.host().stop();
  EXPECT_TRUE(all_have_ended(trainer.directory.path()));
}

INSTANTIATE_TEST_SUITE_P(
    Trainers, TrainerFaults,
    ::testing::Values(
        Fault{"dies-at-start", "trainer-died",
              "the trainer ended with exit code 1: ModuleNotFoundError: No module named 'torch'",
              ErrorKind::kRetry},
        Fault{"does-not-serve", "trainer-died",
              "the trainer ended with exit code 0 before it described itself; a trainer in Python "
              "must call starling.serve(...)",
              ErrorKind::kRetry},
        Fault{"prints-and-does-not-serve", "trainer-died",
              "the trainer ended with exit code 0 before it described itself and printed "
              "'accuracy 0.8'; a trainer in Python must call starling.serve(...)",
              ErrorKind::kRetry},
        Fault{"dies", "trainer-died",
              "the trainer ended with exit code 3: RuntimeError: out of \\x1b[31mluck",
              ErrorKind::kRetry},
        Fault{"kills-itself", "trainer-died",
              "the trainer was ended by signal 9 (as the kernel does where memory runs out) and "
              "printed nothing; run its command by hand",
              ErrorKind::kRetry},
        Fault{"hangs", "trainer-deadline",
              "the trainer has not answered 'fit' within 1500ms and was killed; raise "
              "trainer.task-deadline",
              ErrorKind::kRetry},
        Fault{"takes-memory", "trainer-memory", "the trainer took ", ErrorKind::kRetry},
        Fault{"floods-answers", "trainer-protocol",
              "the trainer answered with a line of more than 4.2 MB"},
        Fault{"not-json", "trainer-protocol",
              "the trainer answered with a line that is not a JSON object: 'hello'"},
        Fault{"a-list", "trainer-protocol",
              "the trainer answered with a line that is not a JSON object: '[1]'"},
        Fault{"wrong-id", "trainer-protocol", "the trainer answered to '3' where 2 was asked"},
        Fault{"both", "trainer-protocol", "the trainer answered with both of 'ok' and 'error'"},
        Fault{"neither", "trainer-protocol",
              "the trainer answered with neither of 'ok' and 'error'"},
        Fault{"no-loss", "trainer-protocol", "the trainer answered without 'loss'"},
        Fault{"no-weight", "trainer-protocol", "the trainer answered with weight = 0"},
        Fault{"bad-code", "trainer-protocol",
              "the trainer answered with an error whose code is 'No Data'"},
        Fault{"no-result", "trainer-protocol",
              "the trainer answered 'fit' without a result in the shared memory"},
        Fault{"truncates", "trainer-protocol", "the trainer has cut off the shared memory"},
        Fault{"closes-answers", "trainer-protocol",
              "the trainer closed its answers (descriptor 4) and did not end"},
        Fault{"nan-loss", "diverged", "the trainer answered with a number that is NaN or infinite"},
        Fault{"nan-result", "diverged", "a value that the trainer gave back from 'fit'"}),
    [](const auto& fault) {
      std::string name = fault.param.mode;
      std::erase(name, '-');
      return name;
    });

TEST(TrainerHost, ATrainersOwnErrorDoesNotEndIt) {
  FakeTrainer trainer("error");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(fit(trainer).error(),
              rejected("trainer-failed", "the trainer says: cam-7 has no rows"));
  }
}

// In the directory where it is started, and without one in its name.
TEST(TrainerHost, AFileThatAShellDoesNotFindNeedsItsInterpreter) {
  const std::filesystem::path before = std::filesystem::current_path();
  FakeTrainer trainer("honest");
  std::ofstream(trainer.directory.path() / "train.py") << "";
  std::filesystem::current_path(trainer.directory.path());
  std::vector<std::string> sentences;
  for (const char* command : {"train.py --fast", "other.py"}) {
    trainer.options.trainer = trainer_of(command);
    std::atomic<bool> stop = false;
    TrainerHost host(trainer.options, trainer.log);
    sentences.push_back(host.describe("{}", stop).error().message());
  }
  std::filesystem::current_path(before);
  EXPECT_THAT(sentences[0], EndsWith("not found; name the interpreter, as in \"python3 train.py\", "
                                     "or run it as ./train.py"));
  EXPECT_THAT(sentences[1], EndsWith("not found"));
}

TEST(TrainerHost, AnAnswerThatNobodyAskedForFailsTheNextTask) {
  FakeTrainer trainer("answers-twice");
  EXPECT_TRUE(fit(trainer));
  const auto next = fit(trainer);
  ASSERT_FALSE(next);
  EXPECT_THAT(next.error().message(), StartsWith("the trainer answered what was not asked for"));
  EXPECT_TRUE(fit(trainer));
}

TEST(TrainerHost, AnotherVersionIsRefused) {
  FakeTrainer trainer("another-version");
  const auto answer = fit(trainer);
  EXPECT_EQ(answer.error().code(), "trainer-protocol");
  EXPECT_THAT(answer.error().message(), HasSubstr("speaks version 2 of the protocol"));
}

// The end is seen before the next task, which does not fail for it.
TEST(TrainerHost, ATrainerThatEndedBetweenTasksIsStartedAgain) {
  FakeTrainer trainer("ends-after-a-task");
  pid_t id = 0;
  trainer.log.on_line = [&](std::string_view line) {
    constexpr std::string_view kId = "trainer: process ";
    if (line.starts_with(kId)) id = std::stoi(std::string(line.substr(kId.size())));
  };
  ASSERT_TRUE(fit(trainer));
  ASSERT_GT(id, 0);
  ASSERT_TRUE(ends(id));
  EXPECT_TRUE(fit(trainer));
  EXPECT_EQ(trainer.log.count("the trainer ended with exit code 0"), 1U);
}

TEST(TrainerHost, ThePauseBeforeAStartDoubles) {
  const TrainerHost::Options options;
  std::vector<int> seconds;
  for (const int failures : {1, 2, 3, 6, 7, 1000}) {
    seconds.push_back(static_cast<int>(to_seconds(options.pause_after(failures))));
  }
  EXPECT_THAT(seconds, ElementsAre(1, 2, 4, 32, 60, 60));
}

TEST(TrainerHost, AProgramThatIsMissingIsNamed) {
  FakeTrainer trainer("honest");
  trainer.options.trainer.command = {"no-such-trainer"};
  const Error missing =
      wrong_setting("trainer-cannot-start",
                    "the trainer cannot be started: no-such-trainer cannot be run: No such file "
                    "or directory; look at trainer.command");
  EXPECT_EQ(fit(trainer).error(), missing);
  EXPECT_EQ(fit(trainer).error(), missing) << "after the pause";
}

TEST(TrainerHost, ATaskDoesNotFailForThePauseButWaitsForIt) {
  FakeTrainer trainer("honest");
  trainer.options.trainer.command = {"no-such-trainer"};
  trainer.options.pause_min = std::chrono::hours(2);
  trainer.options.pause_max = std::chrono::hours(1);
  EXPECT_EQ(fit(trainer).error().code(), "trainer-cannot-start");
  std::jthread stopping([&] { trainer.stop = true; });
  EXPECT_EQ(fit(trainer).error().code(), "stopped");
}

TEST(TrainerHost, AStartHasADeadline) {
  FakeTrainer trainer("honest");
  trainer.options.trainer.command = {"sleep", "1000"};
  trainer.options.trainer.start_deadline = milliseconds(200);
  const auto answer = fit(trainer);
  EXPECT_EQ(answer.error().code(), "trainer-deadline");
  EXPECT_THAT(answer.error().message(),
              StartsWith("the trainer has not described itself within 200ms"));
}

TEST(TrainerHost, ATrainerThatDoesNotReadBlocksNobody) {
  FakeTrainer trainer("does-not-read");
  trainer.options.trainer.start_deadline = milliseconds(500);
  const auto answer =
      fit(trainer, R"({"long": ")" + std::string(1'000'000, 'x') + R"("})");  // a pipe holds less
  EXPECT_EQ(answer.error().code(), "trainer-deadline");
}

TEST(TrainerHost, ACancelledTaskDoesNotEndATrainerThatHeedsIt) {
  FakeTrainer trainer("cancellable");
  trainer.options.pause_min = std::chrono::hours(1);
  trainer.log.on_line = [&](std::string_view line) {
    if (line.ends_with("waits for a cancel")) trainer.stop = true;
  };
  EXPECT_EQ(fit(trainer).error().code(), "stopped");
  EXPECT_EQ(fit(trainer).error().code(), "stopped") << "while it is set nothing is begun";
  trainer.stop = false;
  EXPECT_TRUE(fit(trainer));
  EXPECT_EQ(trainer.log.count("killed"), 0U);
}

TEST(TrainerHost, ATrainerThatIgnoresACancelIsKilledAndStartedAgainAtOnce) {
  FakeTrainer trainer("ignores-cancel");
  trainer.options.pause_min = std::chrono::hours(1);
  trainer.log.on_line = [&](std::string_view line) {
    if (line.ends_with("waits for a cancel")) trainer.stop = true;
  };
  EXPECT_EQ(fit(trainer).error(), retry("stopped", "the trainer's task was stopped"));
  EXPECT_EQ(trainer.log.count("it was killed"), 1U);
  EXPECT_TRUE(all_have_ended(trainer.directory.path()));
  trainer.stop = false;
  EXPECT_TRUE(fit(trainer));
}

// A start may take longer than a round.
TEST(TrainerHost, AStartGoesOnWhenItsTaskIsStopped) {
  FakeTrainer trainer("starts-when-told");
  const std::string gate = (trainer.directory.path() / "gate").string();
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  trainer.log.on_line = [&](std::string_view line) {
    if (line.ends_with("starting")) trainer.stop = true;
  };
  EXPECT_EQ(fit(trainer).error().code(), "stopped");
  trainer.stop = false;
  const FileDescriptor open(::open(gate.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_TRUE(fit(trainer, R"({"depth": 18})")) << "also a task with other settings than that one";
  EXPECT_EQ(trainer.log.count("starting"), 1U);
}

TEST(TrainerHost, OutputIsLoggedAndAFloodIsCut) {
  FakeTrainer trainer("floods-output");
  EXPECT_TRUE(fit(trainer));
  trainer.host().stop();
  EXPECT_EQ(trainer.log.count("trainer: line 0"), 1U);
  EXPECT_GE(trainer.log.count("dropped"), 1U);
  for (const std::string& line : trainer.log.lines) {
    EXPECT_LT(line.size(), 4200U);
    EXPECT_EQ(line.find('\x1b'), line.npos);
  }
}

TEST(TrainerHost, ItSeesNothingOfOurs) {
  FakeTrainer trainer("environment");
  ::setenv("STARLING_TRAINER_TEST", "1", 1);
  EXPECT_TRUE(fit(trainer));
  ::unsetenv("STARLING_TRAINER_TEST");
  // The last is the directory that it lists.
  EXPECT_EQ(trainer.log.count("environment ['STARLING_TRAINER'], descriptors ['0', '1', '2', '3', "
                              "'4', '5']"),
            1U);
}

TEST(TrainerHost, ItsLibrariesTakeTheThreadsThatItMay) {
  ::unsetenv("OMP_NUM_THREADS");
  ::setenv("OPENBLAS_NUM_THREADS", "7", 1);
  FakeTrainer trainer("environment");
  trainer.options.threads = 3;
  EXPECT_TRUE(fit(trainer));
  ::unsetenv("OPENBLAS_NUM_THREADS");
  EXPECT_EQ(trainer.log.count("threads 3 7"), 1U) << "but for what somebody has set";
}

TEST(TrainerHost, WhatItForkedGoesWithIt) {
  FakeTrainer trainer("leaves-a-child");
  EXPECT_TRUE(fit(trainer));
  trainer.host().stop();
  EXPECT_TRUE(all_have_ended(trainer.directory.path()));
}

TEST(TrainerHost, ATrainerThatDoesNotStopIsKilled) {
  FakeTrainer trainer("does-not-stop");
  EXPECT_TRUE(fit(trainer));
  trainer.host().stop();
  EXPECT_TRUE(all_have_ended(trainer.directory.path()));
}

}  // namespace
}  // namespace starling::client
