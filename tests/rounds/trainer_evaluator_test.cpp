// SPDX-License-Identifier: Apache-2.0
// Evaluation at the coordinator by real processes, honest and not.
#include "coordinator/service/trainer_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/client/fake_trainer.h"

namespace starling::coordinator {
namespace {

using client::FakeTrainer;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

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
                                   const RunContext& context = context_of()) {
  return evaluator.evaluate(context, 1, context.external);
}

std::string failure(const Result<train::Evaluation>& found) {
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

// Its own evaluation is bounded by the trainer's deadlines; those of other runs by its patience.
TEST(TrainerEvaluator, WhoWaitsForOtherRunsGivesUpAndWhatHasBegunGoesOn) {
  FakeTrainer trainer("cancellable");
  TrainerEvaluator evaluator(trainer.options, trainer.log, milliseconds(50));
  auto first = std::async(std::launch::async, [&] { return evaluate(evaluator); });
  while (trainer.log.count("waits for a cancel") == 0) std::this_thread::yield();
  EXPECT_THAT(failure(evaluate(evaluator)), HasSubstr("trainer-busy: "));
  EXPECT_THAT(failure(evaluate(evaluator)), HasSubstr("trainer-busy: "));
  EXPECT_EQ(first.wait_for(milliseconds(0)), std::future_status::timeout) << "past its patience";
  evaluator.stop();
  EXPECT_THAT(failure(first.get()), HasSubstr("stopped: "));
}

}  // namespace
}  // namespace starling::coordinator
