// SPDX-License-Identifier: Apache-2.0
// The coordinator's trainer in a run's life: what it makes before the first round and evaluates
// after each, and a run that ends meanwhile.
#include <gmock/gmock.h>

#include "core/model/external_model.h"
#include "tests/coordinator/coordinator_core_fixture.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Error run_stopped() { return retry("stopped", "the run was stopped"); }

class FakeEvaluator final : public ModelEvaluator {
 public:
  Result<train::Evaluation> evaluate(RunId, const RunContext&, Round, const model::Snapshot&,
                                     const std::stop_token& stop) override {
    if (stop.stop_requested()) return run_stopped();
    return train::Evaluation{.loss = 0.25, .samples = 4};
  }
  Result<model::Snapshot> initialize(RunId run, const Job& job,
                                     const std::stop_token& stop) override {
    if (stop.stop_requested()) return run_stopped();
    asked.push_back(run);
    if (failure) return *failure;
    const auto layout = model::external_layout({{.name = "w", .shape = {3}}}).value();
    const auto made = std::make_shared<model::Parameters>(layout);
    std::ranges::fill(made->values(), static_cast<float>(job.job.seed));
    return model::Snapshot(made);
  }
  std::optional<RunId> at_work_for() const override { return busy_for; }

  std::vector<RunId> asked;
  std::optional<Error> failure;
  std::optional<RunId> busy_for;
};

// The run of the fixture has ended before it began; those of the tests are of external models.
class CoordinatorTrainerTest : public CoordinatorCoreTest {
 protected:
  CoordinatorTrainerTest() {
    EXPECT_TRUE(store->request_stop(id, {}));
    job.training.model.kind = "external";
    job.training.data = {};
    job.evaluate.dataset = kByTrainer;
    job.job.seed = 5;
    id = submit(job);
  }
  RunId submit(const Job& submitted) {
    return store->submit_run({.name = "r", .seed = 5, .job = job_to_toml(submitted)}, {}).value();
  }
  RunId submit_built_in() {
    Job built_in = job;
    built_in.training.model.kind = "softmax-regression";
    built_in.training.data = {.input = {2}, .classes = 2};
    built_in.evaluate.dataset.clear();
    return submit(built_in);
  }
  void begin() {
    start(0s, &trainer);
    core->handle(SessionOpened{SessionId(1), "cam-7"});
    hear(protocol::Hello{.rows = 10, .abilities = {"model-external", "model-softmax-regression"}});
    core->runs().load_next();
  }
  // Until its update is added and only the model is to be made and evaluated.
  void train_and_hold_evaluation() {
    begin();
    wait(1s);
    phases.holds = true;
    send_update();
    phases.release();
    wait(0s);
    ASSERT_EQ(phases.held(), 1U);
  }
  void release() {
    phases.holds = false;
    phases.release();
    wait(1s);
  }
  void stop(RunId run) {
    ASSERT_TRUE(store->request_stop(run, {}));
    core->stop(run);
  }
  store::Run run(RunId which) { return store->find_run(which).value().value(); }
  std::string waits_for(RunId which) { return core->waits_for(run(which)); }
  std::vector<std::string> lines(std::string_view part) {
    std::vector<std::string> found;
    for (const std::string& call : store->calls) {
      if (call.starts_with("say ") && call.find(part) != call.npos) found.push_back(call.substr(4));
    }
    return found;
  }

  FakeEvaluator trainer;
};

TEST_F(CoordinatorTrainerTest, ASlowEvaluationIsNamedOnceAndWhenItIsDone) {
  train_and_hold_evaluation();
  wait(29s);
  EXPECT_EQ(waits_for(id), "its evaluation by the coordinator's trainer, for 29s so far");
  EXPECT_TRUE(lines("waiting for its evaluation").empty());
  wait(20s);
  EXPECT_THAT(lines("waiting for its evaluation"),
              ::testing::ElementsAre(
                  "[round 1/10] waiting for its evaluation by the coordinator's trainer, for 30s "
                  "so far; 'run stop' does not wait for it"));
  trainer.busy_for = RunId(9);
  EXPECT_EQ(waits_for(id), "the coordinator's trainer, which is at work for run 9, for 49s so far");
  release();
  EXPECT_THAT(lines("coordinator's trainer is done"),
              ::testing::ElementsAre("[round 1/10] the evaluation by the coordinator's trainer is "
                                     "done after 49s"));
  EXPECT_EQ(waits_for(id), "");
  EXPECT_EQ(store->rounds(id, 1).value()[0].result.evaluation.loss, 0.25);
}

TEST_F(CoordinatorTrainerTest, AQuickEvaluationIsNotNamed) {
  train_and_hold_evaluation();
  wait(20s);
  release();
  wait(5min);
  EXPECT_EQ(store->last_round(id).value(), 1U);
  EXPECT_TRUE(lines("coordinator's trainer is done").empty());
  EXPECT_TRUE(lines("waiting for its evaluation").empty());
}

TEST_F(CoordinatorTrainerTest, ARunThatIsStoppedKeepsItsRoundWithoutTheEvaluation) {
  train_and_hold_evaluation();
  wait(40s);
  stop(id);
  release();
  EXPECT_EQ(run(id).state, store::RunState::kStopped);
  EXPECT_EQ(store->last_round(id).value(), 1U);
  EXPECT_EQ(lines("was given up after 40s").size(), 1U);
  EXPECT_THAT(lines("not evaluated"),
              ::testing::ElementsAre(
                  "[round 1/10] not evaluated at the coordinator: stopped, the run was stopped"));
}

TEST_F(CoordinatorTrainerTest, OtherRunsBeginWhileAModelIsMade) {
  const RunId other = submit(job);
  const RunId built_in = submit_built_in();
  phases.holds = true;
  begin();
  phases.holds = false;
  wait(10s);
  EXPECT_EQ(run(id).state, store::RunState::kPending);
  EXPECT_EQ(waits_for(id), "the coordinator's trainer, which makes the model to begin with");
  EXPECT_EQ(waits_for(other),
            fmt::format("the coordinator's trainer, which makes the model of run {}", id.value()));
  EXPECT_EQ(run(built_in).state, store::RunState::kRunning);
  release();
  EXPECT_EQ(run(id).state, store::RunState::kRunning);
  EXPECT_EQ(run(other).state, store::RunState::kRunning);
  EXPECT_THAT(trainer.asked, ::testing::ElementsAre(id, other));
  EXPECT_EQ(lines("the coordinator's trainer makes the model to begin with, from seed 5").size(),
            2U);
}

// As if it were given as a file.
TEST_F(CoordinatorTrainerTest, TheModelThatWasMadeIsRecordedByTheHashOfItsFile) {
  begin();
  wait(1s);
  const auto file = read_file(disk, checkpoints.path(0), 1 << 20).value();
  const Sha256Digest recorded = sha256(file);
  EXPECT_EQ(run(id).initial_sha256, recorded);
  EXPECT_EQ(lines("the model to begin with is made: SHA-256 " + recorded.hex()).size(), 1U);
  const auto model = model::load_external_model(disk, checkpoints.path(0)).value();
  EXPECT_THAT(std::as_const(model).values(), ::testing::ElementsAre(5, 5, 5));
  trainer.failure = rejected("trainer-died", "it is not asked again");
  core.reset();
  begin();
  wait(1s);
  EXPECT_EQ(lines("resumed after round 0").size(), 1U);
  EXPECT_EQ(run(id).initial_sha256, recorded);
  EXPECT_EQ(trainer.asked.size(), 1U);
}

TEST_F(CoordinatorTrainerTest, ARunThatIsStoppedWhileItsModelIsMadeHasEnded) {
  const RunId next = submit(job);
  phases.holds = true;
  begin();
  wait(1s);
  stop(id);
  EXPECT_EQ(run(id).state, store::RunState::kStopped);
  ASSERT_EQ(phases.held(), 2U) << "the next one asks";
  phases.holds = false;
  phases.release();
  release();
  EXPECT_EQ(run(id).state, store::RunState::kStopped);
  EXPECT_EQ(run(next).state, store::RunState::kRunning);
  EXPECT_THAT(trainer.asked, ::testing::ElementsAre(next));
}

// While it is loaded, with the model.
TEST_F(CoordinatorTrainerTest, ARunThatIsStoppedOnceItsModelIsMadeHasEnded) {
  phases.holds = true;
  begin();
  wait(1s);
  phases.release();  // completes in the next turn, and the load in the one after that of the stop
  scheduler.post([this] {
    stop(id);
    core->runs().load_next();
  });
  wait(1s);
  EXPECT_THAT(trainer.asked, ::testing::ElementsAre(id));
  EXPECT_EQ(run(id).state, store::RunState::kStopped);
}

TEST_F(CoordinatorTrainerTest, ATrainerThatFailsToMakeTheModelEndsTheRunByName) {
  trainer.failure = rejected("trainer-died", "the trainer was ended by signal 9");
  const RunId next = submit_built_in();
  begin();
  wait(1s);
  EXPECT_EQ(run(id).state, store::RunState::kFailed);
  EXPECT_EQ(run(id).error_code, "trainer-died");
  EXPECT_EQ(run(id).error, "the model to begin with: the trainer was ended by signal 9");
  EXPECT_EQ(run(next).state, store::RunState::kRunning);
}

TEST_F(CoordinatorTrainerTest, AStopOfTheServiceLeavesTheRunToTheNextStart) {
  phases.holds = true;
  begin();
  wait(1s);
  core->drain();
  release();
  EXPECT_EQ(run(id).state, store::RunState::kPending);
  EXPECT_TRUE(trainer.asked.empty());
  core->runs().load_next();
  wait(1s);
  EXPECT_TRUE(trainer.asked.empty()) << "nothing begins any more";
  core.reset();
  begin();
  wait(1s);
  EXPECT_EQ(run(id).state, store::RunState::kRunning);
}

TEST_F(CoordinatorTrainerTest, AJobWithoutItsModelNeedsATrainerHere) {
  std::optional<Result<TriedJob>> tried;
  const auto submission = [&](ModelEvaluator* external) {
    start(0s, external);
    core->runs().try_job(job, [&](Result<TriedJob> result) { tried = std::move(result); });
    wait(1s);
  };
  submission(nullptr);
  ASSERT_TRUE(tried && !*tried);
  EXPECT_EQ(tried->error().code(), "no-initial-model");
  EXPECT_THAT(tried->error().message(), HasSubstr("model.initial"));
  EXPECT_THAT(tried->error().message(), HasSubstr("[trainer] command in coordinator.toml"));
  submission(&trainer);
  ASSERT_TRUE(tried && *tried) << (*tried ? "" : tried->error().message());
  EXPECT_EQ((*tried)->initial_sha256, std::nullopt);
  EXPECT_TRUE(trainer.asked.empty()) << "when its turn comes";
  job.round.value_max = 1e30;
  job.round.weight_max = 1e30;
  submission(&trainer);
  EXPECT_FALSE(*tried) << "what does not depend on the model is checked";
}

}  // namespace
}  // namespace starling::coordinator
