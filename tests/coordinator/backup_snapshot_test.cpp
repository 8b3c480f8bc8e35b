// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/backup_snapshot.h"

#include <gmock/gmock.h>

#include <fstream>

#include "coordinator/commands/backup_directory.h"
#include "core/base/durable_file.h"
#include "core/store/checkpoints.h"
#include "core/store/sqlite_store.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A run of two rounds whose strategy has a state, and files of a third that was never committed.
class BackupSnapshotTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(init_state_directory(state_.root(), {.listen = "127.0.0.1:17443"}, clock_));
    store_ = store::open_sqlite_store(state_.database(), {}).value();
    ASSERT_EQ(store_->submit_run({.name = "r"}, {}).value(), kRun);
    ASSERT_TRUE(store_->start_run(kRun, write(0), "", {}));
    for (const Round round : {1, 2}) {
      ASSERT_TRUE(store_->open_attempt({{kRun, round, 1}, {}, hash(text("model", round - 1)), {}}));
      ASSERT_TRUE(store_->commit_attempt({kRun, round, 1}, {}, write(round)));
    }
    write(3);
  }
  static std::string text(const std::string& what, Round round) {
    return what + " " + std::to_string(round);
  }
  static Sha256Digest hash(const std::string& content) { return sha256(as_bytes(content)); }
  store::ModelRecord write(Round round) {
    const std::string model = text("model", round), state = text("state", round);
    const SharedBytes model_parts[] = {{nullptr, as_bytes(model)}};
    const SharedBytes state_parts[] = {{nullptr, as_bytes(state)}};
    EXPECT_TRUE(checkpoints_.write(round, model_parts));
    EXPECT_TRUE(checkpoints_.write_state(round, state_parts));
    return {.round = round,
            .sha256 = hash(model),
            .state = store::StateFile{hash(state), state.size()}};
  }
  Result<BackupSnapshot> take() {
    return BackupSnapshot::take(*store_, state_, CoordinatorSettings(), clock_.wall_now());
  }

  static constexpr RunId kRun{1};
  SystemClock clock_;
  testing::TemporaryDirectory directory_;
  const StateDirectory state_{directory_.path() / "lab"};
  SystemDisk disk_;
  const store::Checkpoints checkpoints_{disk_, state_.models(kRun)};
  std::unique_ptr<store::Store> store_;
};

TEST_F(BackupSnapshotTest, HasTheStatesOfTheStrategyBesideTheModels) {
  auto snapshot = take();
  ASSERT_TRUE(snapshot) << snapshot.error().message();
  std::vector<std::string> models;
  for (const BackupFile& file : snapshot->listing().files) {
    if (file.path.starts_with("models/")) models.push_back(file.path);
  }
  EXPECT_THAT(models, ElementsAre("models/1/0.safetensors", "models/1/0.state.safetensors",
                                  "models/1/1.safetensors", "models/1/1.state.safetensors",
                                  "models/1/2.safetensors", "models/1/2.state.safetensors"));

  const auto backup = directory_.path() / "backup", restored = directory_.path() / "restored";
  auto receiver = BackupReceiver::create(backup);
  ASSERT_TRUE(receiver);
  const auto answer = answer_backup(*std::move(snapshot));
  while (!answer->done()) {
    const auto piece = answer->next();
    ASSERT_TRUE(piece);
    ASSERT_TRUE(receiver->take(piece->view()));
  }
  ASSERT_TRUE(std::move(*receiver).finish());
  ASSERT_TRUE(restore_backup(backup, restored));
  const StateDirectory state(restored);
  const auto store = store::open_sqlite_store(state.database(), {}).value();
  const auto recovery = store::recover_run(
      *store, store::Checkpoints(disk_, state.models(kRun)), kRun,
      [](Disk&, const auto& file) { return hash(read_text_file(file, 100).value()); });
  ASSERT_TRUE(recovery) << recovery.error().message();
  EXPECT_EQ(recovery->model.round, 2U);
  EXPECT_EQ(recovery->model.state->sha256, hash("state 2"));
  EXPECT_THAT(recovery->complaints, IsEmpty());
}

TEST_F(BackupSnapshotTest, NamesALastStateThatIsMissing) {
  std::filesystem::remove(checkpoints_.state_path(1));
  EXPECT_THAT(take()->listing().notes, ::testing::Not(::testing::Contains(HasSubstr("state"))))
      << "older rounds may have been pruned";
  std::filesystem::remove(checkpoints_.state_path(2));
  EXPECT_THAT(take()->listing().notes, ::testing::Contains(HasSubstr("2.state.safetensors")));
}

}  // namespace
}  // namespace starling::coordinator
