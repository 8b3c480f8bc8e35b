// SPDX-License-Identifier: Apache-2.0
// Evaluation at the coordinator by real processes, honest and not.
#include "coordinator/service/trainer_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stop_token>
#include <thread>

#include "tests/client/fake_trainer.h"

namespace starling::coordinator {
namespace {

using client::FakeTrainer;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr RunId kRun{7};
constexpr RunId kOtherRun{8};

// Of the fake trainer's tensors, with an extra one where it is to be another model.
RunContext context_of(std::vector<model::TensorInfo> more = {}) {
  std::vector<model::TensorInfo> tensors = {
      {.name = "w", .shape = {3}},
      {.name = "b", .shape = {}},
      {.name = "counter", .shape = {1}, .role = model::Role::kBuffer}};
  tensors.insert(tensors.end(), more.begin(), more.end());
  Job job;
  job.training.model.kind = "external";
  job.evaluate.dataset = kByTrainer;
  const ExternalOrigin origin{.model = std::make_shared<const model::Parameters>(
                                  model::external_layout(std::move(tensors)).value()),
                              .initial_sha256 = std::nullopt};
  return prepare_run(job, nullptr, strategy::builtin_strategies(), origin).value();
}

Result<train::Evaluation> evaluate(TrainerEvaluator& evaluator,
                                   const RunContext& context = context_of(), RunId run = kRun,
                                   const std::stop_token& stop = {}) {
  return evaluator.evaluate(run, context, 1, context.external, stop);
}

Job external_job(const std::string& settings = "{}") {
  Job job;
  job.training.model.kind = "external";
  job.training.trainer.settings = settings;
  return job;
}

template <class T>
std::string failure(const Result<T>& found) {
  return found ? "none" : found.error().code() + ": " + found.error().message();
}

TEST(TrainerEvaluator, EvaluatesAsTheCoordinatorInOneProcess) {
  FakeTrainer trainer("honest");
  {
    TrainerEvaluator evaluator(trainer.options, trainer.log);
    const RunContext context = context_of();
    EXPECT_TRUE(context.evaluates(1));
    const auto found = evaluate(evaluator, context);
    ASSERT_TRUE(found) << failure(found);
    EXPECT_EQ(found->samples, 4U);
    // Of the first four rows of this client at the model 0, by hand.
    double loss = 0;
    std::size_t key = 0;
    for (const char c : kEvaluatorClient) key += static_cast<unsigned char>(c);
    for (std::size_t i = 0; i < 4; ++i) {
      const auto x = [&](std::size_t j) {
        return static_cast<double>((i * 7 + j * 3 + key) % 11) / 10 - 0.5;
      };
      const double y = 2 * x(0) - x(2) + 0.5;
      loss += y * y / 2 / 4;
    }
    EXPECT_NEAR(found->loss, loss, 1e-12);
    EXPECT_EQ(evaluate(evaluator, context)->loss, found->loss);
    EXPECT_TRUE(trainer.log.lines.empty()) << "nothing was started again";
  }
  EXPECT_TRUE(client::all_have_ended(trainer.directory.path()));
}

TEST(TrainerEvaluator, NamesWhatGoesWrongAndGoesOn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"dies", "trainer-died: "},
      {"dies-at-start", "trainer-died: "},
      {"not-json", "trainer-protocol: "},
      {"nan-loss", "diverged: "},
      {"error", "trainer-failed: the trainer says: cam-7 has no rows"}};
  for (const auto& [mode, expected] : cases) {
    FakeTrainer trainer(mode);
    trainer.options.pause_max = Duration::zero();
    TrainerEvaluator evaluator(trainer.options, trainer.log);
    EXPECT_THAT(failure(evaluate(evaluator)), HasSubstr(expected)) << mode;
    if (mode == "error") continue;  // of this trainer, every time
    EXPECT_EQ(failure(evaluate(evaluator)), "none") << mode;
  }
  FakeTrainer hanging("hangs");
  hanging.options.trainer.task_deadline = milliseconds(200);
  TrainerEvaluator evaluator(hanging.options, hanging.log);
  EXPECT_THAT(failure(evaluate(evaluator)), HasSubstr("trainer-deadline: "));
}

TEST(TrainerEvaluator, RefusesWhatItsTrainerCannotDo) {
  FakeTrainer trainer("fit-only");
  TrainerEvaluator without(trainer.options, trainer.log);
  EXPECT_THAT(failure(evaluate(without)), HasSubstr("unsupported-operation: "));
  FakeTrainer honest("honest");
  TrainerEvaluator evaluator(honest.options, honest.log);
  const RunContext other = context_of({{.name = "z", .shape = {2}}});
  EXPECT_THAT(failure(evaluate(evaluator, other)), HasSubstr("tensors-differ: "));
  EXPECT_EQ(failure(evaluate(evaluator)), "none");
}

TEST(TrainerEvaluator, AStopEndsAnEvaluationAndTheProcess) {
  FakeTrainer trainer("ignores-cancel");
  {
    TrainerEvaluator evaluator(trainer.options, trainer.log);
    trainer.log.on_line = [&](std::string_view line) {
      if (line.find("waits for a cancel") != line.npos) evaluator.stop();
    };
    EXPECT_THAT(failure(evaluate(evaluator)), HasSubstr("stopped: "));
    EXPECT_THAT(failure(evaluate(evaluator)), HasSubstr("stopped: ")) << "nothing begins any more";
  }
  EXPECT_TRUE(client::all_have_ended(trainer.directory.path()));
}

// Its own evaluation is bounded by the trainer's deadlines; those of other runs by its job's
// round.deadline.
TEST(TrainerEvaluator, WhoWaitsForOtherRunsGivesUpAndWhatHasBegunGoesOn) {
  FakeTrainer trainer("cancellable");
  TrainerEvaluator evaluator(trainer.options, trainer.log);
  RunContext context = context_of();
  context.job.round.deadline = milliseconds(50);
  auto first = std::async(std::launch::async, [&] { return evaluate(evaluator, context); });
  while (trainer.log.count("waits for a cancel") == 0) std::this_thread::yield();
  EXPECT_EQ(evaluator.at_work_for(), kRun);
  EXPECT_THAT(failure(evaluate(evaluator, context, kOtherRun)), HasSubstr("trainer-busy: "));
  EXPECT_THAT(failure(evaluate(evaluator, context, kOtherRun)),
              HasSubstr("busy for 50ms (round.deadline) with models of other runs"));
  EXPECT_EQ(first.wait_for(milliseconds(0)), std::future_status::timeout) << "past its patience";
  evaluator.stop();
  EXPECT_THAT(failure(first.get()), HasSubstr("stopped: the service was stopped"));
}

// The trainer never answers: it is killed a second after its task was cancelled.
TEST(TrainerEvaluator, TheEndOfARunWaitsForNoEvaluationAndCostsNoOtherRunItsOwn) {
  FakeTrainer trainer("ignores-cancel");
  {
    TrainerEvaluator evaluator(trainer.options, trainer.log);
    RunContext context = context_of();
    context.job.round.deadline = std::chrono::minutes(5);
    std::stop_source run, waiting;
    auto hanging = std::async(std::launch::async,
                              [&] { return evaluate(evaluator, context, kRun, run.get_token()); });
    while (trainer.log.count("waits for a cancel") == 0) std::this_thread::yield();
    auto behind = std::async(std::launch::async, [&] {
      return evaluate(evaluator, context, RunId(9), waiting.get_token());
    });
    auto other =
        std::async(std::launch::async, [&] { return evaluate(evaluator, context, kOtherRun); });
    waiting.request_stop();
    EXPECT_EQ(failure(behind.get()), "stopped: the run was stopped") << "it had not begun";
    EXPECT_EQ(evaluator.at_work_for(), kRun);
    run.request_stop();
    EXPECT_EQ(failure(hanging.get()), "stopped: the run was stopped");
    EXPECT_EQ(failure(other.get()), "none");
    EXPECT_EQ(trainer.log.count("it was killed"), 1U);
    EXPECT_EQ(failure(evaluate(evaluator, context, kRun, run.get_token())),
              "stopped: the run was stopped");
  }
  EXPECT_TRUE(client::all_have_ended(trainer.directory.path()));
}

TEST(TrainerEvaluator, MakesTheModelThatASimulationBeginsWith) {
  FakeTrainer trainer("honest");
  const Job job = external_job(R"({"seeded":true})");
  TrainerEvaluator evaluator(trainer.options, trainer.log);
  const auto made = evaluator.initialize(kRun, job, {});
  ASSERT_TRUE(made) << failure(made);
  const std::span<const float> values = (*made)->values();
  EXPECT_THAT(std::vector(values.begin() + 1, values.end()),
              ::testing::ElementsAre(7, 0.25, 0.25, 0.25));
  const std::atomic<bool> never = false;
  const auto simulated = initialize_by(trainer.host(), "client-1", job, never);
  ASSERT_TRUE(simulated) << failure(simulated);
  EXPECT_EQ(**simulated, **made);
  Job other = job;
  other.job.seed = 2;
  EXPECT_NE(**evaluator.initialize(kRun, other, {}), **made);
}

TEST(TrainerEvaluator, SaysWhyThereIsNoModelToBeginWith) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"dies", "trainer-died: "},
      {"nan-result", "diverged: "},
      {"no-result", "trainer-protocol: "},
      {"fit-only", "unsupported-operation: "}};
  for (const auto& [mode, expected] : cases) {
    FakeTrainer trainer(mode);
    TrainerEvaluator evaluator(trainer.options, trainer.log);
    EXPECT_THAT(failure(evaluator.initialize(kRun, external_job(), {})), HasSubstr(expected))
        << mode;
  }
  FakeTrainer hanging("cancellable");
  TrainerEvaluator evaluator(hanging.options, hanging.log);
  std::stop_source run;
  hanging.log.on_line = [&](std::string_view line) {
    if (line.find("waits for a cancel") != line.npos) run.request_stop();
  };
  EXPECT_EQ(failure(evaluator.initialize(kRun, external_job(), run.get_token())),
            "stopped: the run was stopped");
}

}  // namespace
}  // namespace starling::coordinator
