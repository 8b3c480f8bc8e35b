// SPDX-License-Identifier: Apache-2.0
#include "core/store/checkpoints.h"

#include <fstream>

#include "core/base/durable_file.h"
#include "tests/store/store_fixture.h"

namespace starling::store {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<ModelRecord> models_up_to(Round last) {
  std::vector<ModelRecord> models;
  for (Round round = 0; round <= last; ++round) {
    models.push_back(model(round, "model " + std::to_string(round)));
  }
  return models;
}

Result<Sha256Digest> hash_content(Disk&, const fs::path& file) {
  STARLING_ASSIGN(const Bytes content, read_file(file, 1000));
  if (as_text(content).starts_with("garbage")) {
    return rejected("file-malformed", file.string() + " is no model");
  }
  if (as_text(content).starts_with("F33")) {
    return unsupported("unsupported-dtype", file.string() + " is of type F33");
  }
  return sha256(content);
}

class CheckpointsTest : public ::testing::Test {
 protected:
  void write(Round round) {
    const std::string content = "model " + std::to_string(round);
    const SharedBytes whole = SharedBytes::own(to_bytes(as_bytes(content)));
    const SharedBytes parts[] = {whole.slice(0, 3), whole.slice(3, whole.size() - 3)};
    ASSERT_TRUE(checkpoints_.write(round, parts));
  }
  void write_state(Round round) {
    const std::string content = "state " + std::to_string(round);
    const SharedBytes parts[] = {SharedBytes::own(to_bytes(as_bytes(content)))};
    ASSERT_TRUE(checkpoints_.write_state(round, parts));
  }
  void overwrite(const std::string& name, std::string_view content) {
    std::ofstream(folder_ / name) << content;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  testing::TemporaryDirectory directory_;
  const fs::path folder_ = directory_.path() / "models" / "1";
  SystemDisk disk_;
  const Checkpoints checkpoints_{disk_, folder_};
};

TEST(BestRound, IsOfHighestAccuracyElseOfLowestLoss) {
  std::vector<ModelRecord> models = models_up_to(4);
  EXPECT_EQ(best_round(models), std::nullopt);
  EXPECT_EQ(best_round({}), std::nullopt);
  models[1].evaluation = {0.9, std::nullopt};
  models[2].evaluation = {0.4, std::nullopt};
  models[3].evaluation = {0.4, std::nullopt};
  EXPECT_EQ(best_round(models), 2U) << "the earlier of equals";
  models[4].evaluation = {5.0, 0.1};
  EXPECT_EQ(best_round(models), 4U) << "an accuracy counts more than any loss";
  models[1].evaluation.accuracy = 0.2;
  EXPECT_EQ(best_round(models), 1U);
}

TEST(BestRound, IsByTheClientsEvaluationWhereTheCoordinatorMadeNone) {
  std::vector<ModelRecord> models = models_up_to(3);
  models[1].federated = {0.5, 0.7};
  models[2].federated = {0.4, 0.9};
  EXPECT_EQ(best_round(models), 2U);
  models[3].evaluation = {0.9, 0.1};
  EXPECT_EQ(best_round(models), 3U) << "the two are never compared";
}

TEST(BestRound, IsByTheMetricThatIsAskedFor) {
  std::vector<ModelRecord> models = models_up_to(4);
  models[1].evaluation = {0.1, 0.2};
  models[2].evaluation = {0.4, 0.8};
  models[3].federated = {0.3, 0.5};
  models[4].federated = {0.6, 0.7};
  const Metric accuracy{"accuracy", false, true}, loss{"loss", false, false};
  const Metric federated_loss{"loss", true, false};
  EXPECT_EQ(best_round(models), 2U);
  EXPECT_EQ(best_round(models, accuracy), 2U);
  EXPECT_EQ(best_round(models, loss), 1U);
  EXPECT_EQ(best_round(models, Metric{"accuracy", true, true}), 4U);
  EXPECT_EQ(best_round(models, federated_loss), 3U);
  models[3].federated = models[4].federated = {};
  EXPECT_EQ(best_round(models, federated_loss), std::nullopt)
      << "the coordinator's own evaluation is another measure";
  EXPECT_THAT(rounds_to_keep(models, 1, loss), ElementsAre(0, 1, 4));
  EXPECT_THAT(rounds_to_keep(models, 1, accuracy), ElementsAre(0, 2, 4));
}

TEST(BestRound, IsByATrainersMetricWhereThatIsAskedFor) {
  std::vector<ModelRecord> models = models_up_to(4);
  models[1].evaluation = {0.1, 0.9, {{"mae", 0.5}}};
  models[2].evaluation = {0.4, 0.8, {{"mae", 0.25}, {"r2", 3}}};
  models[3].evaluation = {0.5, 0.7};
  models[3].federated = {0.5, 0.7, {{"mae", 0.125}}};
  const Metric mae{"mae", false, false};
  EXPECT_EQ(best_round(models, mae), 2U);
  EXPECT_EQ(best_round(models, Metric{"mae", false, true}), 1U);
  EXPECT_EQ(best_round(models, Metric{"mae", true, false}), 3U);
  EXPECT_EQ(best_round(models, Metric{"f1", false, true}), std::nullopt);
  EXPECT_EQ(best_round(models), 1U) << "of the highest accuracy";
  EXPECT_EQ(best_model(models, mae)->by, mae);
  EXPECT_EQ(best_model(models, mae)->value, 0.25);
}

TEST(RoundsToKeep, AreTheLastTheFirstAndTheBest) {
  std::vector<ModelRecord> models = models_up_to(9);
  EXPECT_THAT(rounds_to_keep(models, 3), ElementsAre(0, 7, 8, 9));
  models[4].evaluation.accuracy = 0.8;
  models[6].evaluation.accuracy = 0.7;
  EXPECT_THAT(rounds_to_keep(models, 3), ElementsAre(0, 4, 7, 8, 9));
  EXPECT_THAT(rounds_to_keep(models, 1), ElementsAre(0, 4, 9));
  EXPECT_EQ(rounds_to_keep(models, 0).size(), 10U);
  EXPECT_EQ(rounds_to_keep(models, 100).size(), 10U);
  EXPECT_THAT(rounds_to_keep({}, 3), IsEmpty());
}

TEST_F(CheckpointsTest, PrunesWhatIsCommittedAndNotKept) {
  for (Round round = 0; round <= 6; ++round) write(round);
  overwrite("best.safetensors", "the owner's");
  overwrite("07.safetensors", "the owner's");
  std::vector<ModelRecord> models = models_up_to(5);  // 6 is written, not yet committed
  models[2].evaluation.accuracy = 0.9;
  ASSERT_TRUE(checkpoints_.prune(models, 2));
  EXPECT_THAT(files(),
              ElementsAre("0.safetensors", "07.safetensors", "2.safetensors", "4.safetensors",
                          "5.safetensors", "6.safetensors", "best.safetensors"));
  EXPECT_EQ(read_text_file(checkpoints_.path(5), 100).value(), "model 5");
}

TEST_F(CheckpointsTest, PrunesTheStateOfTheStrategyWithItsModel) {
  for (Round round = 0; round <= 4; ++round) {
    write(round);
    write_state(round);
  }
  overwrite("best.state.safetensors", "the owner's");
  std::vector<ModelRecord> models = models_up_to(3);  // 4 is written, not yet committed
  for (ModelRecord& model : models) model.state = StateFile{digest("state"), 7};
  ASSERT_TRUE(checkpoints_.prune(models, 1));
  EXPECT_THAT(files(), ElementsAre("0.safetensors", "0.state.safetensors", "3.safetensors",
                                   "3.state.safetensors", "4.safetensors", "4.state.safetensors",
                                   "best.state.safetensors"));
  EXPECT_EQ(checkpoints_.state_path(3), folder_ / "3.state.safetensors");
  EXPECT_EQ(read_text_file(checkpoints_.state_path(3), 100).value(), "state 3");
}

std::string aside(Round round, std::string_view content, std::string_view kind = "") {
  return "set-aside/" + std::to_string(round) + "-" +
         sha256(as_bytes(content)).hex().substr(0, 16) + std::string(kind) + ".safetensors";
}

TEST_F(CheckpointsTest, SetsAsideStatesThatAreNotKnown) {
  for (Round round = 0; round <= 2; ++round) {
    write(round);
    write_state(round);
  }
  std::vector<ModelRecord> models = models_up_to(1);
  models[0].state = StateFile{digest("state 0"), 7};  // that of round 1 was never committed
  const auto one = aside(1, "state 1", ".state");
  EXPECT_THAT(checkpoints_.set_aside(models).value(),
              ElementsAre(one, aside(2, "model 2"), aside(2, "state 2", ".state")));
  EXPECT_THAT(files(),
              ElementsAre("0.safetensors", "0.state.safetensors", "1.safetensors", "set-aside"));
  EXPECT_EQ(read_text_file(folder_ / one, 100).value(), "state 1");
}

TEST_F(CheckpointsTest, SetsAsideWhatIsNotKnownAndRemovesNothing) {
  EXPECT_THAT(checkpoints_.set_aside({}).value(), IsEmpty()) << "a folder that is not there";
  for (Round round = 0; round <= 3; ++round) write(round);
  overwrite(".3.safetensors.ab12cd.tmp", "half");
  overwrite("notes.txt", "the owner's");
  const auto two = aside(2, "model 2"), three = aside(3, "model 3");
  EXPECT_THAT(checkpoints_.set_aside(models_up_to(1)).value(), ElementsAre(two, three));
  EXPECT_THAT(files(), ElementsAre("0.safetensors", "1.safetensors", "notes.txt", "set-aside"));
  EXPECT_EQ(read_text_file(folder_ / two, 100).value(), "model 2");
  EXPECT_THAT(checkpoints_.set_aside(models_up_to(1)).value(), IsEmpty());
  write(2);
  overwrite("3.safetensors", "another");
  EXPECT_THAT(checkpoints_.set_aside(models_up_to(1)).value(),
              ElementsAre(two, aside(3, "another")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "set-aside"), {}), 3)
      << "the same content is kept once, other content beside it";
}

TEST_F(CheckpointsTest, SetsAsideTheModelsOfRunsThatHaveNotStartedOrAreUnknown) {
  const auto store = open_store_in_memory();
  const fs::path folder = directory_.path() / "models";
  EXPECT_THAT(set_aside_unknown_runs(*store, disk_, folder).value(), IsEmpty());
  for (int run = 1; run <= 4; ++run) {
    ASSERT_EQ(store->submit_run({"job", 1, "", ""}, at(0)).value(), RunId(run));
    ASSERT_TRUE(Checkpoints(disk_, folder / std::to_string(run)).write(0, {}));
  }
  ASSERT_TRUE(store->start_run(RunId(1), model(0, ""), "", at(0)));
  ASSERT_TRUE(store->start_run(RunId(2), model(0, ""), "", at(0)));
  ASSERT_TRUE(store->finish_run(RunId(2), {}, at(0)));
  for (const char* name : {"7", "08", "mine"}) {
    ASSERT_TRUE(Checkpoints(disk_, folder / name).write(5, {}));
  }
  EXPECT_THAT(set_aside_unknown_runs(*store, disk_, folder).value(),
              ElementsAre(HasSubstr("of run 3"), HasSubstr("of run 4"),
                          AllOf(HasSubstr("of run 7"), HasSubstr(aside(5, "")))));
  for (const char* name : {"1/0", "2/0", "08/5", "mine/5"}) {
    EXPECT_TRUE(fs::exists(folder / (std::string(name) + ".safetensors"))) << name;
  }
  EXPECT_FALSE(fs::exists(folder / "7" / "5.safetensors"));
}

struct SyncingDisk final : SystemDisk {
  Result<void> sync(const fs::path& directory) override {
    synced.push_back(directory);
    return SystemDisk::sync(directory);
  }
  std::vector<fs::path> synced;
};

TEST_F(CheckpointsTest, AFolderOfAnEarlierProcessIsMadeToLast) {
  const auto store = open_store_in_memory();
  fs::create_directories(folder_);
  SyncingDisk disk;
  ASSERT_TRUE(set_aside_unknown_runs(*store, disk, folder_.parent_path()));
  EXPECT_THAT(disk.synced, ElementsAre(folder_.parent_path()));
}

class RecoveryTest : public CheckpointsTest {
 protected:
  // A running run with four committed rounds and an open attempt at the next.
  void SetUp() override {
    run_ = store_->submit_run({"job", 1, "", ""}, at(0)).value();
    ASSERT_TRUE(store_->start_run(run_, model(0, "model 0"), "", at(0)));
    write(0);
    for (Round round = 1; round <= 4; ++round) {
      write(round);
      open(round);
      ASSERT_TRUE(store_->commit_attempt({run_, round, 1}, {}, record(round)));
    }
    open(5);
  }
  virtual ModelRecord record(Round round) { return model(round, "model " + std::to_string(round)); }
  void open(Round round) {
    ASSERT_TRUE(store_->open_attempt(
        attempt(run_, round, 1, round, {"a"}, "model " + std::to_string(round - 1))));
  }
  Result<Recovery> recover() { return recover_run(*store_, checkpoints_, run_, hash_content); }

  const std::unique_ptr<Store> store_ = open_store_in_memory();
  RunId run_;
};

TEST_F(RecoveryTest, AnIntactRunGoesOnWithItsOpenAttempt) {
  write(5);  // was durable, but never committed
  const Result<Recovery> recovery = recover();
  ASSERT_TRUE(recovery);
  EXPECT_EQ(recovery->model, model(4, "model 4"));
  EXPECT_THAT(recovery->complaints, ElementsAre(HasSubstr(aside(5, "model 5"))));
  EXPECT_EQ(read_text_file(folder_ / aside(5, "model 5"), 100).value(), "model 5");
  EXPECT_TRUE(store_->find_open_attempt(run_).value().has_value());
}

TEST_F(RecoveryTest, DamagedRoundsAreWithdrawnOneByOne) {
  overwrite("4.safetensors", "garbage");
  overwrite("3.safetensors", "another model");
  fs::remove(checkpoints_.path(2));
  const Result<Recovery> recovery = recover();
  ASSERT_TRUE(recovery);
  EXPECT_EQ(recovery->model.round, 1U);
  EXPECT_THAT(recovery->complaints,
              ElementsAre(HasSubstr("round 4 of run 1 is withdrawn"), HasSubstr("SHA-256"),
                          HasSubstr("missing"), HasSubstr("4-")));
  EXPECT_THAT(recovery->complaints[0], HasSubstr("is no model"));
  EXPECT_EQ(store_->models(run_).value().size(), 2U);
  EXPECT_THAT(files(), ElementsAre("0.safetensors", "1.safetensors", "set-aside"));
  EXPECT_EQ(store_->find_open_attempt(run_).value(), std::nullopt);
}

// What an earlier prune removed is not read again.
TEST_F(RecoveryTest, PruneKeepsTheFirstTheBestAndTheLastByTheStore) {
  AttemptResult measured;
  for (Round round = 5; round <= 9; ++round) {
    if (round > 5) open(round);
    measured.evaluation.accuracy = round == 6 ? 0.9 : 0.5;
    write(round);
    ASSERT_TRUE(store_->commit_attempt({run_, round, 1}, measured, record(round)));
    ASSERT_TRUE(prune(*store_, checkpoints_, run_, 2, std::nullopt));
  }
  EXPECT_THAT(files(),
              ElementsAre("0.safetensors", "6.safetensors", "8.safetensors", "9.safetensors"));
  write(10);  // not committed
  ASSERT_TRUE(prune(*store_, checkpoints_, run_, 1, std::nullopt));
  EXPECT_THAT(files(),
              ElementsAre("0.safetensors", "10.safetensors", "6.safetensors", "9.safetensors"));
  EXPECT_EQ(store_->last_round(run_).value(), 9U);
  EXPECT_EQ(store_->find_model(run_, 6)->value().evaluation.accuracy, 0.9);
  EXPECT_EQ(store_->find_model(run_, 10).value(), std::nullopt);
}

TEST_F(RecoveryTest, AFlippedByteThatNamesAnotherTypeIsDamage) {
  overwrite("4.safetensors", "F33");
  const Result<Recovery> recovery = recover();
  ASSERT_TRUE(recovery);
  EXPECT_EQ(recovery->model.round, 3U);
}

TEST_F(RecoveryTest, NothingIsWithdrawnWhereNothingIsIntact) {
  for (Round round = 0; round <= 4; ++round)
    overwrite(std::to_string(round) + ".safetensors", "F33");
  EXPECT_EQ(code_of(recover()), "model-damaged");
  for (Round round = 0; round <= 4; ++round) fs::remove(checkpoints_.path(round));
  EXPECT_EQ(code_of(recover()), "models-missing") << "a disk that is not mounted yet";
  EXPECT_EQ(store_->models(run_).value().size(), 5U);
}

TEST_F(RecoveryTest, AFileThatCannotBeReadIsNotDamaged) {
  for (const Error& error : {rejected("no-permission", "root owns it"),
                             overloaded("out-of-memory", "full"), internal("io-error", "disk")}) {
    const auto fails = [&](Disk&, const fs::path&) -> Result<Sha256Digest> { return error; };
    EXPECT_EQ(code_of(recover_run(*store_, checkpoints_, run_, fails)), error.code());
    EXPECT_EQ(store_->models(run_).value().size(), 5U);
  }
}

// The same run under a strategy with a state.
class StateRecoveryTest : public RecoveryTest {
 protected:
  ModelRecord record(Round round) override {
    write_state(round);
    ModelRecord made = RecoveryTest::record(round);
    made.state = StateFile{digest("state " + std::to_string(round)), 7};
    return made;
  }
};

TEST_F(StateRecoveryTest, AnIntactRunKeepsItsState) {
  write(5);
  write_state(5);  // was durable, but never committed
  const Result<Recovery> recovery = recover();
  ASSERT_TRUE(recovery);
  EXPECT_EQ(recovery->model, record(4));
  EXPECT_THAT(recovery->complaints, ElementsAre(AllOf(HasSubstr(aside(5, "model 5")),
                                                      HasSubstr(aside(5, "state 5", ".state")))));
  EXPECT_TRUE(store_->find_open_attempt(run_).value().has_value());
}

TEST_F(StateRecoveryTest, ARoundWhoseStateIsDamagedOrMissingIsWithdrawn) {
  overwrite("4.state.safetensors", "another state");
  fs::remove(checkpoints_.state_path(3));
  const Result<Recovery> recovery = recover();
  ASSERT_TRUE(recovery);
  EXPECT_EQ(recovery->model.round, 2U);
  EXPECT_THAT(
      recovery->complaints,
      ElementsAre(AllOf(HasSubstr("round 4 of run 1 is withdrawn"), HasSubstr("a state of")),
                  AllOf(HasSubstr("round 3"), HasSubstr("3.state.safetensors is missing")),
                  AllOf(HasSubstr(aside(3, "model 3")), HasSubstr(aside(4, "model 4")),
                        HasSubstr(aside(4, "another state", ".state")))));
  EXPECT_THAT(files(), ElementsAre("0.safetensors", "1.safetensors", "1.state.safetensors",
                                   "2.safetensors", "2.state.safetensors", "set-aside"));
  EXPECT_EQ(store_->find_open_attempt(run_).value(), std::nullopt);
}

TEST_F(StateRecoveryTest, AStateThatIsNoFileCostsItsRoundAsAModelDoes) {
  fs::remove(checkpoints_.state_path(4));
  fs::create_directory(checkpoints_.state_path(4));
  const Result<Recovery> recovery = recover();
  ASSERT_TRUE(recovery) << recovery.error().message();
  EXPECT_EQ(recovery->model.round, 3U);
}

}  // namespace
}  // namespace starling::store
