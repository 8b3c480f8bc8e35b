// SPDX-License-Identifier: Apache-2.0
// A simulated federated run that is stopped and gone on with: in the end its files are those of a
// run that was never stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "coordinator/simulation/simulate.h"
#include "coordinator/simulation/simulation_output.h"
#include "core/base/durable_file.h"
#include "tests/client/fake_trainer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/timeless_run.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kClients = 6;
constexpr int kRounds = 6;

Job job_of(const std::string& strategy) {
  Job job;
  job.job.rounds = kRounds;
  job.training.model.kind = "softmax-regression";
  job.training.train.batch_size = 16;
  job.training.train.learning_rate = 0.05;
  job.training.strategy.name = strategy;
  job.round.cohort = 4;
  job.round.min_updates = 3;
  job.checkpoint.keep = 0;
  job.data.dataset = "synthetic:rows=600,features=6,classes=3";
  job.data.partition = "dirichlet:alpha=1";
  job.evaluate.dataset = "synthetic:rows=300,features=6,classes=3:test";
  return job;
}

// Links and nodes that differ, and a few clients that are slow: rounds close without them.
WorldOptions rough_world() {
  WorldOptions world;
  world.network.latency = "lognormal:20ms,1";
  world.network.jitter = "exponential:10ms";
  world.network.bandwidth = "uniform:20kB/s,500kB/s";
  world.network.loss = 0.1;
  world.nodes.speed = "lognormal:1,0.5";
  world.nodes.step_jitter = "exponential:1";
  world.nodes.stragglers = 0.3;
  return world;
}

void let_clients_come_and_go(Job& job, WorldOptions& world) {
  world.nodes.crash_every = 4s;
  world.nodes.return_after = 1s;
  job.round.min_updates = 2;
  job.round.deadline = 3s;
  job.round.reconnect_grace = 500ms;
  job.round.attempts_max = 1000;
}

class Lines final : public Log {
 public:
  void write(LogLevel, std::string_view line) override {
    if (!line.starts_with("trainer") && !line.starts_with("evaluates")) lines.emplace_back(line);
  }
  std::vector<std::string> lines;  // of how a run begins and goes on
};

class StoppedRun : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }

  // Stops after so many commits of this process.
  Result<SimulationResult> run(const Job& job, const std::optional<WorldOptions>& world,
                               const std::string& out, int commits_max = INT_MAX,
                               unsigned threads = 1) {
    const SystemClock clock;
    int asked = 0;
    SavePolicy saves(clock.now(), [&] { return ++asked > commits_max; });
    SimulateOptions options{.clients = kClients, .threads = threads, .log = &log_};
    options.saves = &saves;
    options.world = world;
    options.trainer = trainer_;
    options.out = path(out);
    options.inputs = inputs_;
    options.asked = {{"seed", std::to_string(job.job.seed)},
                     {"train.learning-rate", std::to_string(job.training.train.learning_rate)}};
    return simulate(job, options, clock, {});
  }

  // Every file by its path, run.json without what depends on the day.
  std::map<std::string, std::string> files(const std::string& out) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path(out))) {
      if (!entry.is_regular_file()) continue;
      const std::string name = std::filesystem::relative(entry.path(), path(out)).string();
      if (name == "report.html" || name == "SHA256SUMS") continue;  // of run.json
      std::string text = read_text_file(entry.path(), 1 << 24).value();
      found[name] = name == "run.json" ? testing::timeless(text) : text;
    }
    return found;
  }

  // Stops after each commit, going on in between, and compares.
  void expect_same_in_pieces(const Job& job, const std::optional<WorldOptions>& world = {},
                             const std::string& name = "run") {
    const std::string once = name + "-whole";
    const std::string again = name + "-stopped";
    log_.lines.clear();
    const auto undisturbed = run(job, world, once);
    ASSERT_TRUE(undisturbed) << undisturbed.error().message();
    const std::map<std::string, std::string> whole = files(once);
    int stops = 0;
    for (;; ++stops) {
      ASSERT_LT(stops, 100);
      const auto part = run(job, world, again, 0, 1 + static_cast<unsigned>(stops % 3));
      if (part) break;
      ASSERT_EQ(part.error().code(), "stopped") << part.error().message();
    }
    EXPECT_GE(stops, 4);
    const std::map<std::string, std::string> pieces = files(again);
    for (const auto& [file, content] : whole) {
      ASSERT_TRUE(pieces.contains(file)) << file;
      EXPECT_EQ(pieces.at(file), content) << file;
    }
    EXPECT_EQ(pieces.size(), whole.size());
    EXPECT_EQ(log_.lines.size(), static_cast<std::size_t>(stops));
    EXPECT_THAT(log_.lines, Each(HasSubstr("goes on after round ")));
  }

  Lines log_;
  Settings inputs_;
  std::optional<client::TrainerOptions> trainer_;
  testing::TemporaryDirectory directory_;
};

// --- the same bits -------------------------------------------------------------------------------

class StoppedRunOf : public StoppedRun, public ::testing::WithParamInterface<const char*> {};

TEST_P(StoppedRunOf, EndsAsIfItHadNeverBeenStopped) { expect_same_in_pieces(job_of(GetParam())); }

TEST_P(StoppedRunOf, AmongStragglersEndsAsIfItHadNeverBeenStopped) {
  Job job = job_of(GetParam());
  job.round.cohort = 5;
  job.round.min_updates = 2;
  job.round.deadline = 2s;
  expect_same_in_pieces(job, rough_world());
}

TEST_P(StoppedRunOf, WhileClientsCrashEndsAsIfItHadNeverBeenStopped) {
  Job job = job_of(GetParam());
  WorldOptions world = rough_world();
  let_clients_come_and_go(job, world);
  expect_same_in_pieces(job, world);
}

INSTANTIATE_TEST_SUITE_P(Strategies, StoppedRunOf,
                         ::testing::Values("fedavg", "fedprox", "fedavgm", "fedadam", "fednova",
                                           "qfedavg", "scaffold", "feddyn", "diloco"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_F(StoppedRun, WithEvaluationsByClientsAndAnEarlyStop) {
  Job job = job_of("fedavg");
  job.job.rounds = 30;
  job.data.hold_out = 0.2;
  job.evaluate.federated_every = 2;
  job.stop.metric = "federated-loss";
  job.stop.patience = 2;
  job.training.train.learning_rate = 1.0;
  expect_same_in_pieces(job);
}

// Its process is another one after each stop; the control variates of clients are kept for it.
TEST_F(StoppedRun, OfATrainerOfOnesOwn) {
  if (std::system("python3 -c ''") != 0) GTEST_SKIP() << "the trainer needs python3";
  const auto job_with_trainer = [](const std::string& strategy) {
    Job job = job_of(strategy);
    job.training.model.kind = "external";
    job.training.train.local_steps = 2;
    job.data = {};
    job.evaluate.dataset = "trainer";
    job.evaluate.federated_every = 2;
    return job;
  };
  client::FakeTrainer with_buffers("honest");
  trainer_ = with_buffers.options.trainer;
  expect_same_in_pieces(job_with_trainer("fedadam"), {}, "fedadam");
  client::FakeTrainer fake("without-buffers");
  trainer_ = fake.options.trainer;
  expect_same_in_pieces(job_with_trainer("scaffold"), rough_world(), "scaffold");
  EXPECT_THAT(files("scaffold-whole").at("run.json"), Not(HasSubstr("\"eval_loss\":null")));
}

TEST_F(StoppedRun, ThatIsEvaluatedOnWhatItsClientsHoldOut) {
  std::ofstream rows(path("rows.csv"));
  rows << "a,b,label\n";
  for (int row = 0; row < 300; ++row) rows << row % 11 << "," << row % 7 << "," << row % 3 << "\n";
  rows.close();
  Job job = job_of("fedavg");
  job.data.dataset = "csv:" + path("rows.csv").string();
  job.data.partition = "iid";
  job.evaluate.dataset.clear();
  expect_same_in_pieces(job);
  EXPECT_THAT(files("run-whole").at("run.json"), Not(HasSubstr("\"eval_loss\":null")));
}

TEST_F(StoppedRun, OfARuleThatNeedsAllUpdatesAtOnce) {
  Job job = job_of("fedavgm");
  job.aggregation.rule = "median";
  expect_same_in_pieces(job, rough_world());
}

TEST_F(StoppedRun, ThroughAnAbsenceOfTheCoordinatorAndASplitNetwork) {
  Job job = job_of("scaffold");
  job.round.attempts_max = 1000;
  WorldOptions world = rough_world();
  world.coordinator_link.coordinator_away = "2s+5s;15s+3s";
  world.network.splits = "9s-11s:2";
  expect_same_in_pieces(job, world);
}

// Some train for many rounds that close without them.
TEST_F(StoppedRun, WithClientsAtWorkOnTheModelsOfLongAgo) {
  for (const char* strategy : {"fedavg", "scaffold"}) {
    Job job = job_of(strategy);
    job.job.rounds = 20;
    job.round.cohort = 3;
    job.round.min_updates = 1;
    job.round.deadline = 2s;
    job.round.attempts_max = 1000;
    WorldOptions world = rough_world();
    world.nodes.stragglers = 0.5;
    world.nodes.slowdown = 40;
    expect_same_in_pieces(job, world, strategy);
  }
}

TEST_F(StoppedRun, ThatKeepsFewModels) {
  Job job = job_of("feddyn");
  job.checkpoint.keep = 1;
  expect_same_in_pieces(job, rough_world());
}

// A kill leaves what was written after the last save.
TEST_F(StoppedRun, ThatWasKilledAfterItWasSavedLast) {
  const Job job = job_of("scaffold");
  ASSERT_TRUE(run(job, rough_world(), "whole"));
  ASSERT_EQ(run(job, rough_world(), "out", 2).error().code(), "stopped");
  std::filesystem::copy(path("out"), path("saved"), std::filesystem::copy_options::recursive);
  ASSERT_EQ(run(job, rough_world(), "out", 2).error().code(), "stopped");
  for (const char* file : {"checkpoint.state", "unfinished.json"}) {
    std::filesystem::copy_file(path("saved") / file, path("out") / file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  ASSERT_TRUE(run(job, rough_world(), "out"));
  EXPECT_EQ(files("out"), files("whole"));
}

// --- what is not gone on with --------------------------------------------------------------------

TEST_F(StoppedRun, WithADamagedStateBeginsAgain) {
  const Job job = job_of("scaffold");
  ASSERT_TRUE(run(job, {}, "whole"));
  ASSERT_EQ(run(job, {}, "out", 2).error().code(), "stopped");
  const auto file = path("out") / "checkpoint.state";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 10);
  ASSERT_TRUE(run(job, {}, "out"));
  EXPECT_THAT(log_.lines,
              Contains(HasSubstr("is damaged: it is not as it was written; the run begins again")));
  EXPECT_EQ(files("out"), files("whole"));
}

TEST_F(StoppedRun, WithDamagedModelsOfEarlierRoundsNamesThemAndGoesOn) {
  const Job job = job_of("fedadam");
  ASSERT_EQ(run(job, {}, "out", 4).error().code(), "stopped");
  const auto models = path("out") / "models";
  std::fstream damaged(models / "1.safetensors", std::ios::in | std::ios::out);
  damaged.seekp(-1, std::ios::end);
  damaged << 'x';
  damaged.close();
  std::filesystem::remove(models / "2.safetensors");
  const auto ended = run(job, {}, "out");
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->warning,
            "2 models of earlier rounds are damaged or missing, and not in SHA256SUMS: "
            "1.safetensors, 2.safetensors");
  const auto sums = read_text_file(path("out") / "SHA256SUMS", 1 << 20).value();
  EXPECT_THAT(sums, Not(HasSubstr("models/1.")));
  EXPECT_THAT(sums, HasSubstr("models/3.safetensors"));
  EXPECT_THAT(log_.lines, Contains(HasSubstr("1.safetensors holds a model of SHA-256 ")));
  EXPECT_THAT(log_.lines, Contains(HasSubstr("2.safetensors is missing; the run goes on without")));
  EXPECT_EQ(log_.lines.size(), 3U) << "and that it goes on; the others are whole";
}

TEST_F(StoppedRun, WithTheStateOfAnotherRunBeginsAgain) {
  Job job = job_of("fedavg");
  ASSERT_TRUE(run(job, {}, "whole"));
  ASSERT_EQ(run(job, {}, "out", 2).error().code(), "stopped");
  Job other = job;
  other.training.train.batch_size = 8;  // what was asked looks the same
  ASSERT_EQ(run(other, {}, "other", 3).error().code(), "stopped");
  std::filesystem::copy_file(path("other") / "checkpoint.state", path("out") / "checkpoint.state",
                             std::filesystem::copy_options::overwrite_existing);
  ASSERT_TRUE(run(job, {}, "out"));
  EXPECT_THAT(log_.lines, Contains(HasSubstr("is of a run with other settings, other data or "
                                             "another version; the run begins again")));
  EXPECT_EQ(files("out"), files("whole"));
}

TEST_F(StoppedRun, OfOtherSettingsIsLeftAlone) {
  Job job = job_of("fedavg");
  ASSERT_EQ(run(job, {}, "out", 2).error().code(), "stopped");
  job.training.train.learning_rate = 0.2;
  const auto refused = run(job, {}, "out");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), "out-not-empty");
  EXPECT_THAT(refused.error().message(),
              HasSubstr("holds an unfinished run with other settings (train.learning-rate is "));
  EXPECT_TRUE(std::filesystem::exists(path("out") / "checkpoint.state"));
}

TEST_F(StoppedRun, OfOtherFilesIsLeftAlone) {
  const Job job = job_of("fedavg");
  inputs_ = {{"trainer.command", "one"}};
  ASSERT_EQ(run(job, {}, "out", 2).error().code(), "stopped");
  inputs_ = {{"trainer.command", "another"}};
  const auto refused = run(job, {}, "out");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("(what trainer.command names has changed"));
  inputs_ = {{"trainer.command", "one"}};
  EXPECT_TRUE(run(job, {}, "out"));
}

TEST_F(StoppedRun, WithAFallbackIsNamedAndBeginsAgain) {
  Job job = job_of("fedavg");
  job.fallback.topology = "ring";
  job.fallback.after = 2s;
  WorldOptions world = rough_world();
  world.coordinator_link.coordinator_away = "2s+5s";
  inputs_ = {{"network.links", "content"}};
  ASSERT_TRUE(run(job, world, "whole"));
  const auto stopped = run(job, world, "out", 1);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), "stopped");
  const char* reason = "fallback network ([fallback]) does not save";
  EXPECT_THAT(stopped.error().message(), HasSubstr(reason));
  inputs_ = {{"network.links", "of other content"}};
  const auto other = run(job, world, "out");
  ASSERT_FALSE(other) << "known from the beginning, not only where it was saved";
  EXPECT_THAT(other.error().message(), HasSubstr("(what network.links names has changed"));
  inputs_ = {{"network.links", "content"}};
  ASSERT_TRUE(run(job, world, "out"));
  EXPECT_THAT(log_.lines, Contains(HasSubstr(reason)));
  EXPECT_EQ(files("out"), files("whole"));
}

TEST_F(StoppedRun, KilledBeforeItWasSavedBeginsAgain) {
  const Job job = job_of("fedavg");
  ASSERT_TRUE(run(job, {}, "whole"));
  ASSERT_EQ(run(job, {}, "out", 0).error().code(), "stopped");
  std::filesystem::remove(path("out") / "checkpoint.state");
  ASSERT_TRUE(run(job, {}, "out"));
  EXPECT_THAT(log_.lines, Contains(HasSubstr("stopped before its state was first saved; the run "
                                             "begins again")));
  EXPECT_EQ(files("out"), files("whole"));
}

}  // namespace
}  // namespace starling::coordinator
