// SPDX-License-Identifier: Apache-2.0
// Runs of models that only the clients' own trainers compute with: what they begin with and say on
// the wire, their buffers, and whole simulated federations with crashes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/simulation/federation_simulator.h"
#include "core/base/durable_file.h"
#include "core/client/abilities.h"
#include "core/model/safetensors.h"
#include "core/store/sqlite_store.h"
#include "tests/coordinator/dense_vectors.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

constexpr std::size_t kClients = 3;

// "a": trainable, "b": a buffer, "c": trainable.
std::shared_ptr<const model::Layout> small_layout() {
  return model::external_layout({{.name = "c", .shape = {2, 2}},
                                 {.name = "b", .shape = {2}, .role = model::Role::kBuffer},
                                 {.name = "a", .shape = {3}}})
      .value();
}

model::Parameters small_model() {
  model::Parameters model(small_layout());
  for (std::size_t i = 0; i < model.size(); ++i) model.values()[i] = static_cast<float>(i);
  return model;
}

class ExternalModelRun : public ::testing::Test {
 protected:
  ExternalModelRun() {
    EXPECT_TRUE(model::write_safetensors(file_, small_model()));
    job_.training.model.kind = "external";
    job_.training.model.initial = file_.string();
    job_.job.rounds = 4;
    job_.round.cohort = kClients;
    job_.round.min_updates = kClients;
    job_.round.attempts_max = 100;
  }
  std::string refusal() {
    const auto run = prepare_run(job_, nullptr);
    return run ? "none" : run.error().code() + ": " + run.error().message();
  }

  const testing::TemporaryDirectory directory_;
  const std::filesystem::path file_ = directory_.path() / "initial.safetensors";
  Job job_;
};

TEST_F(ExternalModelRun, NeedsNoRowsAndTellsClientsItsTensorsNotItsFile) {
  job_.training.trainer.settings = R"({"hidden":7})";
  const auto run = prepare_run(job_, nullptr);
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(*run->layout, *small_layout());
  EXPECT_EQ(run->model, nullptr);
  EXPECT_FALSE(run->evaluates(1));
  const Settings settings = run->settings();
  EXPECT_THAT(settings, Contains(std::pair<std::string, std::string>(
                            "model.layout", model::digest_of(*small_layout()).hex())));
  EXPECT_THAT(settings,
              Contains(std::pair<std::string, std::string>("trainer.settings", R"({"hidden":7})")));
  EXPECT_THAT(settings, Not(Contains(Key("model.initial"))));
  EXPECT_THAT(run->abilities(), Contains("model-external"));
  EXPECT_EQ(run->schema().vectors.front().elements, 9U);
  EXPECT_EQ(*run->initial_position(RunId(1), 1).model, small_model());
}

TEST_F(ExternalModelRun, RefusesAFileThatCannotBegin) {
  job_.training.model.layout = std::string(64, '0');
  EXPECT_THAT(refusal(), HasSubstr("layout-mismatch"));
  job_.training.model.layout = model::digest_of(*small_layout()).hex();
  EXPECT_EQ(refusal(), "none") << "a job may say which tensors it means";
  model::Parameters wrong = small_model();
  wrong.values()[4] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(model::write_safetensors(file_, wrong));
  EXPECT_THAT(refusal(), HasSubstr("bad-model"));
  std::filesystem::remove(file_);
  EXPECT_THAT(refusal(), HasSubstr("file-missing: model.initial"));
  job_.training.model.initial.clear();
  EXPECT_THAT(refusal(), HasSubstr("no-initial-model"));
}

TEST_F(ExternalModelRun, AFileThatChangedSinceItsSubmissionIsNotTheModelToBeginWith) {
  const auto tried = try_job(job_, prepare_context, std::nullopt);
  ASSERT_TRUE(tried) << tried.error().message();
  const Sha256Digest submitted = sha256(read_file(file_, 1 << 20).value());
  EXPECT_EQ(tried->initial_sha256, submitted) << "as sha256sum prints it";
  store::Run run{.id = RunId(3), .seed = 1, .job = job_to_toml(job_)};
  run.initial_sha256 = submitted;
  EXPECT_EQ(*load_new_run(run)->at.model, small_model());
  model::Parameters other = small_model();
  other.values()[0] = 7;
  ASSERT_TRUE(model::write_safetensors(file_, other));
  const auto loaded = load_new_run(run);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), "initial-differs");
  EXPECT_THAT(loaded.error().message(), HasSubstr(submitted.hex()));
  run.initial_sha256.reset();  // of an earlier version
  EXPECT_EQ(*load_new_run(run)->at.model, other);
}

TEST_F(ExternalModelRun, AveragesBuffersOnlyWhereClientsSendSteps) {
  job_.training.strategy.name = "fednova";
  EXPECT_THAT(refusal(), HasSubstr("the model has buffers, such as 'b'"));
  job_.training.strategy.name = "fedadam";
  EXPECT_EQ(refusal(), "none");
}

// What a client of an external model would compute, without a process: `by` a client is added to
// all values.
class AddingTrainer final : public client::Trainer {
 public:
  explicit AddingTrainer(float by) : by_(by) {}
  Result<client::TrainingReport> train(const client::TrainingRequest& request,
                                       std::span<float> parameters,
                                       const train::TrainingHooks<float>&,
                                       const std::atomic<bool>&) override {
    for (float& value : parameters) value += by_;
    return client::TrainingReport{.weight = 10,
                                  .train_loss = 1,
                                  .steps = 1,
                                  .rate = 1,
                                  .metrics = {{"tenth", by_ / 10.0}, {"round", request.round}}};
  }
  Result<train::Evaluation> evaluate(const client::TrainingRequest&,
                                     std::span<const float> parameters,
                                     const std::atomic<bool>&) override {
    return train::Evaluation{.loss = -parameters[0],
                             .samples = static_cast<std::uint64_t>(by_),
                             .metrics = {{"by", by_}, {"first", parameters[0]}}};
  }

 private:
  float by_;
};

// Evaluates nothing.
class FailingTrainer final : public client::Trainer {
 public:
  Result<client::TrainingReport> train(const client::TrainingRequest&, std::span<float>,
                                       const train::TrainingHooks<float>&,
                                       const std::atomic<bool>&) override {
    return rejected("trainer-died", "the trainer was ended by signal 9");
  }
  Result<train::Evaluation> evaluate(const client::TrainingRequest&, std::span<const float>,
                                     const std::atomic<bool>&) override {
    return rejected("trainer-died", "the trainer was ended by signal 9");
  }
};

struct Simulated {
  std::optional<model::Parameters> last;
  std::vector<std::optional<double>> losses;  // of evaluations at the coordinator
  std::vector<std::string> lines;
  std::uint64_t crashes = 0;
  std::vector<std::string> models;
  std::vector<store::MetricValues> train_metrics;
  std::vector<Round> kept;  // models with files
  std::vector<store::RoundRecord> evaluations;
};

Simulated simulate(const Job& job, SimulatedFaults faults = {}, bool evaluator_fails = false) {
  FederationSimulator::Options options{.faults = std::move(faults)};
  options.trainers = {
      .make = [=](const std::string& name, unsigned) -> std::unique_ptr<client::Trainer> {
        if (evaluator_fails && name == kEvaluatorClient) {
          return std::make_unique<FailingTrainer>();
        }
        return std::make_unique<AddingTrainer>(static_cast<float>(name.back() - '0'));
      },
      .abilities = {client::kEvaluateAbility, "model-external", client::kSparseAbility}};
  const SystemClock clock;
  const auto store = store::open_store_in_memory();
  Simulated simulated;
  FederationSimulator simulator(
      *store, clock, std::move(options),
      {.on_line = [&](const std::string& line) { simulated.lines.push_back(line); }});
  for (std::size_t k = 1; k <= kClients; ++k) {
    simulator.add_client("client-" + std::to_string(k), {});
  }
  const auto id = simulator.run(prepare_run(job, nullptr).value(), {});
  EXPECT_TRUE(id) << (id ? "" : id.error().message());
  simulated.crashes = simulator.crashes();
  if (!id) return simulated;
  for (const auto& round : store->rounds(*id, 1).value()) {
    if (!round.model) continue;
    simulated.models.push_back(round.model->hex());
    simulated.losses.push_back(round.result.evaluation.loss);
    simulated.train_metrics.push_back(round.result.train_metrics);
  }
  simulated.evaluations = store->evaluations(*id, 1).value();
  const auto run = store->find_run(*id).value();
  EXPECT_EQ(run->state, store::RunState::kCompleted) << run->error;
  const auto path = std::filesystem::path("models") / std::to_string(id->value());
  simulated.kept = store::Checkpoints(simulator.disk_of("coordinator"), path).rounds().value();
  simulated.last =
      model::load_external_model(simulator.disk_of("coordinator"),
                                 path / store::Checkpoints::file_name(simulated.kept.back()))
          .value();
  return simulated;
}

TEST_F(ExternalModelRun, AverageOfItsClientsWithoutRowsAtTheCoordinator) {
  job_.evaluate.federated_every = 1;
  const Simulated simulated = simulate(job_);
  EXPECT_EQ(simulated.models.size(), 4U);
  EXPECT_EQ(*simulated.last->layout(), *small_layout()) << "with its roles";
  const model::Parameters before = small_model();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(simulated.last->values()[i], before.values()[i] + 4 * 2) << "the mean of 1, 2 and 3";
  }
}

// The loss that AddingTrainer finds is the negative of the model's first value.
TEST_F(ExternalModelRun, IsEvaluatedByTheCoordinatorsTrainer) {
  job_.evaluate.dataset = kByTrainer;
  job_.evaluate.every = 2;
  const Simulated simulated = simulate(job_);
  EXPECT_THAT(simulated.losses, ElementsAre(std::nullopt, -4.0, std::nullopt, -8.0));
  EXPECT_THAT(simulated.lines, Contains(HasSubstr("eval loss -8.0000  by ")));
  for (const std::uint64_t n : {5, 10, 20, 30}) {
    EXPECT_EQ(simulate(job_, {.seed = n, .kill_at_message = n}).losses, simulated.losses);
  }
}

TEST_F(ExternalModelRun, AnEvaluatorThatFailsCostsItsEvaluationsOnly) {
  const Simulated without = simulate(job_);
  job_.evaluate.dataset = kByTrainer;
  job_.stop.metric = "loss";
  const Simulated failing = simulate(job_, {}, true);
  EXPECT_EQ(failing.models, without.models);
  EXPECT_THAT(failing.losses, Each(std::optional<double>()));
  EXPECT_THAT(failing.lines,
              Contains(HasSubstr("[round 2/4] not evaluated at the coordinator: trainer-died, the "
                                 "trainer was ended by signal 9")));
  EXPECT_THAT(failing.lines, Contains(HasSubstr("stop.metric = 'loss' was never measured")));
}

// As after a restart with another coordinator.toml.
TEST_F(ExternalModelRun, GoesOnWithoutEvaluationsWhereThereIsNoTrainerAnyMore) {
  job_.evaluate.dataset = kByTrainer;
  const auto context = std::make_shared<const RunContext>(prepare_run(job_, nullptr).value());
  const model::Snapshot base = context->external;
  BeginRound phase{.run = RunId(1), .round = 1, .schema = context->schema()};
  phase.base = {{RunId(1), 0, base->sha256()}, base, {}, {}};
  auto aggregate = RoundAggregate::begin(context, phase).value();
  const SharedBytes payload = SharedBytes::own(Bytes(base->size() * sizeof(float)));
  ASSERT_TRUE(aggregate->add({.task = TaskId(1),
                              .base = phase.base.version,
                              .weight = 1,
                              .vectors = testing::dense_vectors(phase.schema),
                              .scalars = {{"train_loss", 1}},
                              .payload_bytes = payload.size(),
                              .payload_checksum = checksum(payload.view())},
                             payload));
  const auto outcome = std::move(*aggregate).finish(nullptr, nullptr).value();
  EXPECT_EQ(*outcome.next->model, *base);
  EXPECT_FALSE(outcome.measured);
  ASSERT_TRUE(outcome.not_evaluated);
  EXPECT_EQ(outcome.not_evaluated->code(), "no-trainer");
}

// The rows of clients 1, 2 and 3 are 1, 2 and 3.
TEST_F(ExternalModelRun, MetricsOfItsClientsStandInItsRecordsWithoutAnAccuracy) {
  job_.evaluate.federated_every = 1;
  for (const SimulatedFaults& faults : {SimulatedFaults{}, {.seed = 7, .kill_at_message = 25}}) {
    const Simulated simulated = simulate(job_, faults);
    std::size_t committed = 0;
    for (const store::RoundRecord& record : simulated.evaluations) {
      if (record.state != store::RoundState::kCommitted) continue;
      ++committed;
      EXPECT_EQ(record.result.evaluation.accuracy, std::nullopt);
      EXPECT_LT(record.result.evaluation.loss, 0);
      ASSERT_TRUE(record.result.evaluation.metrics.contains("by"));
      EXPECT_DOUBLE_EQ(record.result.evaluation.metrics.at("by"), 14.0 / 6);
    }
    EXPECT_EQ(committed, 4U);
  }
}

TEST_F(ExternalModelRun, MetricsOfItsTrainingsStandInItsRecords) {
  for (const char* rule : {"mean", "median"}) {
    job_.aggregation.rule = rule;
    const Simulated simulated = simulate(job_);
    ASSERT_EQ(simulated.train_metrics.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      ASSERT_EQ(simulated.train_metrics[i].size(), 2U) << rule;
      EXPECT_DOUBLE_EQ(simulated.train_metrics[i].at("tenth"), 0.2);
      EXPECT_EQ(simulated.train_metrics[i].at("round"), static_cast<double>(i + 1));
    }
    EXPECT_THAT(simulated.lines, Contains(HasSubstr("train round 3.0000  train tenth 0.2000")));
    for (const std::uint64_t n : {9U, 25U, 40U}) {
      const Simulated killed = simulate(job_, {.seed = n, .kill_at_message = n});
      EXPECT_EQ(killed.train_metrics, simulated.train_metrics) << "to the bit";
    }
  }
}

// The metric is the model's first value, which rises by 2 a round.
TEST_F(ExternalModelRun, ATrainersMetricEndsTheRunAndSaysWhichModelIsBest) {
  job_.evaluate.dataset = kByTrainer;
  job_.evaluate.federated_every = 1;
  job_.stop = {.metric = "first", .mode = "min", .patience = 2};
  const Simulated simulated = simulate(job_);
  EXPECT_THAT(simulated.lines,
              Contains(HasSubstr("stopped early: first has not improved for 2 evaluations since "
                                 "round 1 (2.0000)")));
  EXPECT_THAT(simulated.kept, ElementsAre(0, 1, 3));
  job_.stop = {.metric = "federated-first", .mode = "max", .patience = 2};
  EXPECT_THAT(simulate(job_).kept, ElementsAre(0, 4));
}

TEST_F(ExternalModelRun, ABufferIsAveragedWhateverTheStrategyMakesOfTheOthers) {
  job_.training.strategy.name = "fedadam";
  const Simulated simulated = simulate(job_);
  const model::Parameters before = small_model();
  const auto layout = small_layout();
  const auto change = [&](std::string_view name) {
    const model::TensorInfo& tensor = *layout->find(name);
    return simulated.last->values(tensor)[0] - std::as_const(before).values(tensor)[0];
  };
  EXPECT_FLOAT_EQ(change("b"), 8);
  EXPECT_GT(std::abs(change("a") - 8), 1) << "a step of the server's optimizer";
}

// Three clients add 1, 2 and 3 in each of four rounds.
TEST_F(ExternalModelRun, ABufferIsWhatItsRuleSays) {
  const auto layout =
      model::external_layout({{.name = "a", .shape = {3}},
                              {.name = "b",
                               .shape = {2},
                               .role = model::Role::kBuffer,
                               .rule = model::BufferRule::kMaximum},
                              {.name = "c", .shape = {2}, .role = model::Role::kBuffer},
                              {.name = "d",
                               .shape = {2},
                               .role = model::Role::kBuffer,
                               .rule = model::BufferRule::kLast}})
          .value();
  ASSERT_TRUE(model::write_safetensors(file_, model::Parameters(layout)));
  struct Case {
    std::string strategy, rule;
    float chosen;  // the third client's is the largest and the last
  };
  std::uint64_t crashes = 0;
  for (const auto& [strategy, rule, chosen] :
       {Case{"fedavg", "mean", 12}, {"fedadam", "mean", 12}, {"fedavg", "median", 8}}) {
    job_.training.strategy.name = strategy;
    job_.aggregation.rule = rule;
    for (const std::uint64_t kill_at : {0U, 21U, 34U}) {
      const Simulated simulated = simulate(job_, {.seed = 5, .kill_at_message = kill_at});
      crashes += simulated.crashes;
      EXPECT_EQ(*simulated.last->layout(), *layout);
      const auto values = [&](std::string_view name) {
        const auto found = std::as_const(*simulated.last).values(*layout->find(name));
        return std::vector<float>(found.begin(), found.end());
      };
      EXPECT_EQ(values("b"), (std::vector<float>{chosen, chosen})) << strategy << ", " << rule;
      EXPECT_EQ(values("c"), (std::vector<float>{8, 8})) << strategy << ", " << rule;
      EXPECT_EQ(values("d"), (std::vector<float>{chosen, chosen})) << strategy << ", " << rule;
    }
  }
  EXPECT_GT(crashes, 0U);
}

// Whichever update comes last; of the clients that count, which need not be all.
TEST_F(ExternalModelRun, TheLastOfABufferIsThatOfTheLastClientByName) {
  const auto layout = model::external_layout({{.name = "a", .shape = {1}},
                                              {.name = "last",
                                               .shape = {1},
                                               .role = model::Role::kBuffer,
                                               .rule = model::BufferRule::kLast},
                                              {.name = "maximum",
                                               .shape = {1},
                                               .role = model::Role::kBuffer,
                                               .rule = model::BufferRule::kMaximum}})
                          .value();
  model::Parameters initial(layout);
  initial.values()[1] = 100;
  ASSERT_TRUE(model::write_safetensors(file_, initial));
  const auto context = std::make_shared<const RunContext>(prepare_run(job_, nullptr).value());
  BeginRound phase{.run = RunId(1), .round = 1, .schema = context->schema()};
  phase.base = {{RunId(1), 0, initial.sha256()}, context->external, {}, {}};
  phase.participants = {{"cam-10", TaskId(1)}, {"cam-2", TaskId(2)}, {"cam-9", TaskId(3)}};
  const std::map<std::uint64_t, float> steps = {{1, 5}, {2, 7}, {3, 1}};
  const auto model_after = [&](const std::vector<std::uint64_t>& tasks) {
    auto aggregate = RoundAggregate::begin(context, phase).value();
    for (const std::uint64_t task : tasks) {
      const std::vector<float> values(3, steps.at(task));
      const SharedBytes payload = SharedBytes::own(to_bytes(as_bytes(std::span(values))));
      EXPECT_TRUE(aggregate->add({.task = TaskId(task),
                                  .base = phase.base.version,
                                  .weight = 1,
                                  .vectors = testing::dense_vectors(phase.schema),
                                  .scalars = {{"train_loss", 1}},
                                  .payload_bytes = payload.size(),
                                  .payload_checksum = checksum(payload.view())},
                                 payload));
    }
    const auto outcome = std::move(*aggregate).finish(nullptr).value();
    const auto values = outcome.next->model->values();
    return std::vector<float>(values.begin(), values.end());
  };
  std::vector<std::uint64_t> order = {1, 2, 3};
  do {
    EXPECT_THAT(model_after(order), ElementsAre(::testing::FloatNear(13.0F / 3, 1e-6F), 101, 7));
  } while (std::ranges::next_permutation(order).found);
  EXPECT_THAT(model_after({2, 1}), ElementsAre(6, 107, 7));
  EXPECT_THAT(model_after({1}), ElementsAre(5, 105, 5));
}

TEST_F(ExternalModelRun, GoesOnFromItsOwnModelsWhoeverIsKilled) {
  const Simulated undisturbed = simulate(job_);
  std::uint64_t crashes = 0;
  for (std::uint64_t n = 1; n <= 60; n += 2) {
    const Simulated killed = simulate(job_, {.seed = n, .kill_at_message = n});
    EXPECT_EQ(killed.models, undisturbed.models) << "killed at message " << n;
    crashes += killed.crashes;
  }
  EXPECT_GT(crashes, 20U);
}

class CountingDisk final : public SystemDisk {
 public:
  Result<std::unique_ptr<DiskFile>> open(const std::filesystem::path& path) override {
    ++opened;
    return SystemDisk::open(path);
  }
  int opened = 0;
};

// A service reads a run's model again after its restart, where the file that it began with is gone.
TEST_F(ExternalModelRun, NeedsItsFileNoMoreOnceItHasBegun) {
  CountingDisk disk;
  const store::Checkpoints checkpoints(disk, directory_.path() / "models");
  const store::Run submitted{.id = RunId(3), .seed = 1, .job = job_to_toml(job_)};
  const LoadedRun begun = load_new_run(submitted).value();
  std::filesystem::create_directories(directory_.path() / "models");
  const auto record = write_position(checkpoints, begun.at, begun.context->job_settings());
  ASSERT_TRUE(record) << record.error().message();
  std::filesystem::remove(file_);
  store::Run running = submitted;
  running.settings = begun.context->job_settings();
  const auto loaded = load_running_run(running, strategy::builtin_strategies(), prepare_context,
                                       checkpoints, *record);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(disk.opened, 1) << "for the layout and for the values";
  EXPECT_EQ(*loaded->at.model, small_model());
  EXPECT_EQ(loaded->context->external, nullptr) << "rounds have a model of their own";
  EXPECT_EQ(loaded->context->settings(), begun.context->settings());
  EXPECT_FALSE(load_new_run(submitted));
}

}  // namespace
}  // namespace starling::coordinator
