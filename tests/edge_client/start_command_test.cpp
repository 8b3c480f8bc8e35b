// SPDX-License-Identifier: Apache-2.0
// `starling-edge start` from the state directory to the signal that ends it.
#include "edge_client/start_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>

#include "core/client/training_settings.h"
#include "core/config/command_line.h"
#include "core/identity/identity_directory.h"
#include "core/model/external_model.h"
#include "tests/client/fake_trainer.h"
#include "tests/edge_client/edge_fixture.h"
#include "tests/edge_client/scripted_coordinator.h"
#include "tests/support/temporary_directory.h"

namespace starling::edge_client {
namespace {

using ::testing::HasSubstr;
using testing::kNow;

class StartCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const identity::HostPort address{"127.0.0.1", coordinator_.listener->port()};
    const auto saved = identity::IdentityDirectory::save(request_.state.identity(),
                                                         coordinator_.device(), address);
    ASSERT_TRUE(saved);
    request_.options.data.dataset = testing::kRows;
  }
  Result<void> start_now() { return start(request_, clock_, log_); }

  testing::ScriptedCoordinator coordinator_;
  const testing::TemporaryDirectory directory_;
  testing::FixedClock clock_{kNow};
  testing::RecordingLog log_;
  StartRequest request_{.state = {directory_.path()}, .version = "test"};
};

TEST_F(StartCommandTest, ASignalEndsItInGoodOrder) {
  for (const int signal : {SIGTERM, SIGINT}) {
    auto ended = std::async(std::launch::async, [this] { return start_now(); });
    coordinator_.welcome();
    const testing::TinyRound round(TaskId(7));
    coordinator_.send(round.plan);  // answered by a process that is wholly there
    coordinator_.expect<protocol::ModelRequest>();
    ::kill(::getpid(), signal);
    EXPECT_EQ(coordinator_.expect<protocol::Bye>().code, "stopped");
    EXPECT_EQ(coordinator_.end(), "closed");
    coordinator_.hang_up();
    EXPECT_TRUE(ended.get());
    EXPECT_FALSE(StateLock::holder(request_.state));
  }
}

TEST_F(StartCommandTest, UnderNohupAHangUpIsIgnored) {
  request_.stops_on_hang_up = false;
  auto ended = std::async(std::launch::async, [this] { return start_now(); });
  coordinator_.welcome();
  ::kill(::getpid(), SIGHUP);
  const testing::TinyRound round(TaskId(7));
  EXPECT_EQ(coordinator_.hand_out(round).head, round.expected("cam-7").head);
  ::kill(::getpid(), SIGTERM);
  coordinator_.expect<protocol::Bye>();
  coordinator_.hang_up();
  EXPECT_TRUE(ended.get());
}

TEST_F(StartCommandTest, WrongSettingsEndWithTwo) {
  const auto code = [this](auto&& change) {
    StartRequest wrong = request_;
    change(wrong.options);
    const auto ended = start(wrong, clock_, log_);
    return ended ? config::ExitCode::kOk : config::exit_code(ended.error());
  };
  for (const char* dataset :
       {"", "mnist", "synthetic:rows=none", "csv:/nonexistent/rows.csv",
        "csv:/nonexistent/rows.csv.gz", "idx:/nonexistent", "fashion-mnist:/nonexistent"}) {
    EXPECT_EQ(code([&](EdgeOptions& o) { o.data.dataset = dataset; }), config::ExitCode::kUsage);
  }
  for (const char* partition : {"iid", "dirichle:index=1,of=2", "iid:index=3,of=2"}) {
    EXPECT_EQ(code([&](EdgeOptions& o) { o.data.partition = partition; }),
              config::ExitCode::kUsage);
  }
  EXPECT_EQ(code([](EdgeOptions& o) { o.limits.memory = 1; }), config::ExitCode::kUsage);
}

TEST_F(StartCommandTest, RefusesByNameWhatCannotWork) {
  {
    const auto lock = StateLock::acquire(request_.state);
    EXPECT_EQ(start_now().error().code(), "already-running");
  }
  request_.options.data.partition = "iid";
  EXPECT_THAT(start_now().error().message(), HasSubstr("add index=K,of=N"));
  request_.options.data.partition = "";
  request_.options.limits.memory = 1;
  EXPECT_EQ(start_now().error().code(), "memory-too-small");
  request_.options.data.dataset = "";
  EXPECT_THAT(start_now().error().message(), HasSubstr("does not say where this device's data is"));
  const auto mark = request_.state.path / "coordinator.toml";
  std::ofstream(mark) << "[service]\n";
  EXPECT_EQ(start_now().error().code(), "is-a-coordinator");
  std::filesystem::remove(mark);
  std::filesystem::remove_all(request_.state.identity());
  EXPECT_EQ(start_now().error().code(), "not-joined");
}

// A trainer may take long to describe itself.
TEST_F(StartCommandTest, ASignalEndsItWhileItsTrainerStarts) {
  if (std::system("python3 -c ''") != 0) GTEST_SKIP() << "there is no python3";
  const client::FakeTrainer fake("starts-when-told");  // which nobody does
  ASSERT_EQ(::mkfifo((fake.directory.path() / "gate").c_str(), 0600), 0);
  request_.options.data.dataset = "";
  request_.options.trainer.command = fake.options.trainer.command;
  client::TrainerLog log;
  log.on_line = [](std::string_view line) {
    if (line.find("trainer: starting") != line.npos) ::kill(::getpid(), SIGTERM);
  };
  EXPECT_TRUE(start(request_, clock_, log));
  EXPECT_EQ(log.count("stopped while the trainer described itself"), 1U);
  EXPECT_TRUE(client::all_have_ended(fake.directory.path()));
  EXPECT_FALSE(StateLock::holder(request_.state));
}

// --- within an application ----------------------------------------------------------------------

class AddsOne final : public client::Trainer {
 public:
  Result<client::TrainingReport> train(const client::TrainingRequest&, std::span<float> parameters,
                                       const train::TrainingHooks<float>&,
                                       const std::atomic<bool>&) override {
    for (float& value : parameters) value += 1;
    return client::TrainingReport{.weight = 40, .train_loss = 0.25, .steps = 1};
  }
};

class EmbeddedClientTest : public StartCommandTest {
 protected:
  EmbeddedClientTest() {
    request_.options.data.dataset = "";
    request_.takes_signals = false;
    request_.stop = stop_.get_token();
    request_.own = {
        .trainer = &trainer_,
        .description = {.name = "the trainer of the test",
                        .operations = {client::TrainerOperation::kFit},
                        .rows = 40,
                        .layout = *model::external_layout({{.name = "weights", .shape = {3}}})}};
  }
  // Of the application's model.
  static testing::TinyRound round(TaskId task) {
    client::TrainingSettings settings;
    settings.model.kind = model::kExternalKind;
    testing::TinyRound made(task);
    made.model = made.model.slice(0, 12);
    made.plan.settings = settings.to_settings();
    made.plan.base.sha256 = sha256(made.model.view());
    made.plan.model_bytes = made.model.size();
    made.plan.schema.vectors = {{.name = "delta", .elements = 3}};
    return made;
  }

  AddsOne trainer_;
  std::stop_source stop_;
};

volatile std::sig_atomic_t signals_taken = 0;

TEST_F(EmbeddedClientTest, TrainsByItsTrainerUntilItIsAskedToStop) {
  signals_taken = 0;
  const auto before = std::signal(SIGTERM, [](int) { signals_taken = signals_taken + 1; });
  auto ended = std::async(std::launch::async, [this] { return start_now(); });
  EXPECT_EQ(coordinator_.welcome(kNow, 0).abilities,
            (std::vector<std::string>{"model-external", "sparse-float32"}));
  ::raise(SIGTERM);  // the application's own
  EXPECT_EQ(signals_taken, 1);
  const auto head = coordinator_.hand_out_all(round(TaskId(7)), false).head;
  EXPECT_EQ(head.weight, 40);
  EXPECT_EQ(head.scalars.at("train_loss"), 0.25);
  EXPECT_EQ(head.payload_bytes, 12U);
  stop_.request_stop();
  EXPECT_EQ(coordinator_.expect<protocol::Bye>().code, "stopped");
  coordinator_.hang_up();
  EXPECT_TRUE(ended.get());
  EXPECT_EQ(log_.count("the trainer of the test: fit; 1 tensor, 3 values; 40 rows"), 1U);
  std::signal(SIGTERM, before);
}

TEST_F(EmbeddedClientTest, RefusesARunOfAnotherModelAndGoesOn) {
  auto ended = std::async(std::launch::async, [this] { return start_now(); });
  coordinator_.welcome(kNow, 0);
  const testing::TinyRound other(TaskId(7));
  coordinator_.send(other.plan);
  coordinator_.expect<protocol::ModelRequest>();
  coordinator_.send_chunk(other, 0, other.model.size());
  const auto failed = coordinator_.expect<protocol::TaskFailed>();
  EXPECT_EQ(failed.code, "tensors-differ");
  EXPECT_THAT(failed.message, HasSubstr("submit the run with model.kind"));
  EXPECT_EQ(coordinator_.hand_out_all(round(TaskId(8)), false).head.weight, 40);
  stop_.request_stop();
  coordinator_.expect<protocol::Bye>();
  coordinator_.hang_up();
  EXPECT_TRUE(ended.get());
}

TEST_F(EmbeddedClientTest, EndsAtOnceWhereItIsAskedToStopBeforeItStarts) {
  stop_.request_stop();
  EXPECT_TRUE(start_now());
}

}  // namespace
}  // namespace starling::edge_client
