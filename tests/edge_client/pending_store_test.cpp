// SPDX-License-Identifier: Apache-2.0
#include "edge_client/pending_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/durable_file.h"
#include "tests/edge_client/edge_fixture.h"
#include "tests/support/temporary_directory.h"

namespace starling::edge_client {
namespace {

namespace fs = std::filesystem;
using client::decode_pending;
using client::encode_pending;
using client::PendingStore;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::make_update;
using testing::RecordingLog;
using testing::TemporaryDirectory;

Bytes joined(const std::vector<SharedBytes>& parts) {
  Bytes bytes;
  for (const SharedBytes& part : parts) {
    bytes.insert(bytes.end(), part.view().begin(), part.view().end());
  }
  return bytes;
}

Bytes flipped(Bytes bytes, std::size_t at) {
  bytes[at] ^= std::byte{0x40};
  return bytes;
}

client::StateSnapshot state_of(float value) {
  strategy::State<float> state;
  state.vectors["control"] = {value, -0.0F, 3e-42F};
  state.scalars["steps"] = 0.1 + 0.2;
  return std::make_shared<const strategy::State<float>>(std::move(state));
}

client::PendingUpdate update_with_state(TaskId task, float value) {
  client::PendingUpdate update = make_update(task, {1, 2, 3});
  update.state = state_of(value);
  return update;
}

class PendingStoreTest : public ::testing::Test {
 protected:
  // What a new process finds.
  std::vector<std::uint64_t> tasks_found(PendingStore::Options options = {}) {
    std::vector<std::uint64_t> tasks;
    const auto left = PendingStore(disk_, directory_, codec_, options).load(log_);
    EXPECT_TRUE(left) << left.error().message();
    for (const auto& update : left->pending) tasks.push_back(update.head.task.value());
    return tasks;
  }
  std::vector<std::uint64_t> runs_found() {
    std::vector<std::uint64_t> runs;
    const auto left = store_.load(log_);
    EXPECT_TRUE(left) << left.error().message();
    for (const auto& state : left->states) runs.push_back(state.run.value());
    return runs;
  }
  Bytes content(TaskId task) { return *read_file(store_.file_of(task), 1 << 20); }
  template <class Id>
  void put(Id id, ByteView bytes) {
    std::ofstream(store_.file_of(id), std::ios::binary) << as_text(bytes);
  }
  Bytes encode(const client::PendingUpdate& update) const {
    return joined(*encode_pending(codec_, update));
  }
  std::size_t count(const std::string& extension) {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      if (entry.path().extension() == extension) ++count;
    }
    return count;
  }

  TemporaryDirectory temporary_;
  SystemDisk disk_;
  fs::path directory_ = temporary_.path() / "pending";
  const update::HeadCodec& codec_ = wire::kUpdateHeads;
  PendingStore store_{disk_, directory_, codec_, {}};
  RecordingLog log_;
};

TEST_F(PendingStoreTest, WhatIsStoredIsFoundBitForBit) {
  ASSERT_TRUE(store_.load(log_)->pending.empty());
  client::PendingUpdate update = make_update(TaskId(7), {1.5F, -0.0F, 3e-42F});
  update.head.scalars["train_loss"] = 0.1 + 0.2;
  ASSERT_TRUE(store_.store(update));
  const auto found = store_.load(log_);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->pending.size(), 1U);
  const client::PendingUpdate& same = found->pending.front();
  EXPECT_EQ(same.head, update.head);
  EXPECT_EQ(to_bytes(same.payload.view()), to_bytes(update.payload.view()));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(same.payload.view().data()) % alignof(float), 0U);
  EXPECT_EQ(same.state, nullptr);
  EXPECT_TRUE(log_.lines.empty());
}

TEST_F(PendingStoreTest, ASparseUpdateIsFoundAsItWas) {
  ASSERT_TRUE(store_.load(log_));
  client::PendingUpdate update = make_update(TaskId(7), {0, 0, 1.5F});  // two words and an element
  update.head.vectors[0] = {"model", update::Encoding::kSparseFloat32Delta, 64, 12};
  ASSERT_TRUE(store_.store(update));
  const auto found = store_.load(log_);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->pending.size(), 1U);
  EXPECT_EQ(found->pending[0].head, update.head);
  EXPECT_EQ(to_bytes(found->pending[0].payload.view()), to_bytes(update.payload.view()));
  update.head.vectors[0].bytes = 16;
  EXPECT_EQ(decode_pending(codec_, encode(update)).error().code(), "pending-damaged");
}

TEST_F(PendingStoreTest, StoringAgainReplacesAndForgettingTwiceIsFine) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.store(make_update(TaskId(7), {1})));
  ASSERT_TRUE(store_.store(make_update(TaskId(7), {2, 3})));
  EXPECT_EQ(store_.load(log_)->pending.front().payload.size(), 8U);
  EXPECT_TRUE(store_.forget(TaskId(7)));
  EXPECT_TRUE(store_.forget(TaskId(7)));
  EXPECT_THAT(tasks_found(), ElementsAre());
}

TEST_F(PendingStoreTest, EveryTruncationIsSetAside) {
  ASSERT_TRUE(store_.load(log_));
  const client::PendingUpdate update = make_update(TaskId(7), {1, 2, 3});
  ASSERT_TRUE(store_.store(update));
  const Bytes whole = content(TaskId(7));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_pending(codec_, Bytes(whole.begin(), whole.begin() + size))) << size;
  }
  put(TaskId(7), ByteView(whole).first(whole.size() - 1));
  EXPECT_THAT(tasks_found(), ElementsAre());
  EXPECT_EQ(count(".damaged"), 1U);
  EXPECT_THAT(log_.lines, ElementsAre(HasSubstr("set aside")));
  EXPECT_THAT(tasks_found(), ElementsAre()) << "a second start stumbles over it no more";
  EXPECT_EQ(log_.lines.size(), 1U);
}

TEST_F(PendingStoreTest, EveryFlippedByteThatMattersIsNoticed) {
  const client::PendingUpdate update = make_update(TaskId(7), {1, 2, 3});
  const Bytes whole = encode(update);
  ASSERT_TRUE(decode_pending(codec_, whole));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    const auto decoded = decode_pending(codec_, flipped(whole, at));
    ASSERT_FALSE(decoded) << "byte " << at;
    EXPECT_EQ(decoded.error().code(), "pending-damaged");
  }
}

// An attacker who can write the file can also make its checksums right.
TEST_F(PendingStoreTest, SizesThatLieAreRefused) {
  const client::PendingUpdate update = make_update(TaskId(7), {1, 2, 3});
  const auto forge = [&](update::ContributionHead head, std::size_t payload_bytes) {
    Bytes file = to_bytes(encode_pending(codec_, {head, {}})->front().view());
    file.resize(file.size() + payload_bytes);
    return decode_pending(codec_, file);
  };
  update::ContributionHead head = update.head;
  head.payload_bytes = std::uint64_t{1} << 49;  // of which 12 bytes are there
  EXPECT_FALSE(forge(head, 12));
  head.payload_bytes = 8;  // less than its vectors
  EXPECT_FALSE(forge(head, 8));
  Bytes file = encode(update);
  store_little(file.data() + 16, std::uint32_t{0xFFFFFFFF});
  EXPECT_FALSE(decode_pending(codec_, file));
  store_little(file.data() + 16, std::uint32_t{0});
  store_little(file.data() + 8, checksum(ByteView(file).subspan(16)));
  EXPECT_FALSE(decode_pending(codec_, file));
}

TEST_F(PendingStoreTest, AFileUnderAnotherTasksNameIsSetAside) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.store(make_update(TaskId(7), {1})));
  fs::rename(store_.file_of(TaskId(7)), store_.file_of(TaskId(8)));
  EXPECT_THAT(tasks_found(), ElementsAre());
  EXPECT_EQ(count(".damaged"), 1U);
}

TEST_F(PendingStoreTest, AFileLargerThanAnyModelIsNotRead) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.store(make_update(TaskId(7), {1})));
  std::error_code code;
  fs::resize_file(store_.file_of(TaskId(7)), std::uintmax_t{1} << 40, code);  // a sparse file
  if (code) GTEST_SKIP() << "no sparse files here";
  EXPECT_THAT(tasks_found({.file_bytes_max = 1000}), ElementsAre());
  EXPECT_EQ(count(".damaged"), 1U);
}

// Whose files cannot be opened for now.
class BusyDisk final : public SystemDisk {
 public:
  Result<std::unique_ptr<DiskFile>> open(const fs::path&) override {
    return overloaded("too-many-files", "cannot open");
  }
};

TEST_F(PendingStoreTest, WhatCannotBeReadNowIsNoDamage) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.keep({RunId(3), 2, TaskId(7), state_of(1)}));
  ASSERT_TRUE(store_.store(make_update(TaskId(8), {1})));
  BusyDisk busy;
  EXPECT_EQ(PendingStore(busy, directory_, codec_, {}).load(log_).error().code(), "too-many-files");
  EXPECT_EQ(count(".damaged"), 0U);
  EXPECT_THAT(runs_found(), ElementsAre(3));
  EXPECT_THAT(tasks_found(), ElementsAre(8));
}

TEST_F(PendingStoreTest, DamagedFilesDoNotPileUp) {
  ASSERT_TRUE(store_.load(log_));
  for (std::uint64_t task = 1; task <= 5; ++task) put(TaskId(task), as_bytes("rubbish"));
  EXPECT_THAT(tasks_found({.set_aside_max = 2}), ElementsAre());
  EXPECT_EQ(count(".damaged"), 2U);
  EXPECT_EQ(count(".update"), 0U);
}

TEST_F(PendingStoreTest, OldestFirstAndOnlyTheNewestAreKept) {
  ASSERT_TRUE(store_.load(log_));
  const auto now = fs::file_time_type::clock::now();
  for (const int task : {3, 1, 2}) {
    const TaskId id(static_cast<std::uint64_t>(task));
    ASSERT_TRUE(store_.store(make_update(id, {1})));
    fs::last_write_time(store_.file_of(id), now - std::chrono::hours(10 - task));
  }
  EXPECT_THAT(tasks_found(), ElementsAre(1, 2, 3));
  EXPECT_THAT(tasks_found({.updates_max = 2}), ElementsAre(2, 3));
  EXPECT_THAT(tasks_found(), ElementsAre(2, 3));
}

// The coordinator may have counted it: then its state is this client's.
TEST_F(PendingStoreTest, AnUpdateWithAStateStaysHoweverOldItIs) {
  ASSERT_TRUE(store_.load(log_));
  const auto now = fs::file_time_type::clock::now();
  for (const int task : {1, 2, 3, 4}) {
    const TaskId id(static_cast<std::uint64_t>(task));
    ASSERT_TRUE(store_.store(task == 2 ? update_with_state(id, 1) : make_update(id, {1})));
    fs::last_write_time(store_.file_of(id), now - std::chrono::hours(10 - task));
  }
  EXPECT_THAT(tasks_found({.updates_max = 1}), ElementsAre(2, 4));
  EXPECT_THAT(tasks_found({.updates_max = 1}), ElementsAre(2, 4));
}

TEST_F(PendingStoreTest, WhatACrashLeavesBehindIsSweptAndOthersFilesStay) {
  ASSERT_TRUE(store_.load(log_));
  std::ofstream(directory_ / ".0000000000000007.update.abc123.tmp") << "half of it";
  std::ofstream(directory_ / "notes.txt") << "mine";
  fs::create_directory(directory_ / "0000000000000009.update");
  EXPECT_THAT(tasks_found(), ElementsAre());
  EXPECT_TRUE(fs::exists(directory_ / "notes.txt"));
  EXPECT_FALSE(fs::exists(directory_ / ".0000000000000007.update.abc123.tmp"));
}

TEST_F(PendingStoreTest, ADirectoryThatWasRemovedIsMadeAgainAndSaidOnce) {
  const PendingStore store(disk_, directory_, codec_, {.log = &log_});
  ASSERT_TRUE(store.load(log_));
  std::ofstream(temporary_.path() / "edge.toml") << "";
  fs::remove_all(directory_);
  EXPECT_TRUE(store.forget(TaskId(6))) << "it is gone with the directory";
  EXPECT_TRUE(store.forget_state(RunId(1)));
  EXPECT_TRUE(store.store(make_update(TaskId(7), {1})));
  EXPECT_TRUE(store.store(make_update(TaskId(8), {1})));
  EXPECT_THAT(log_.lines, ElementsAre(HasSubstr(directory_.string() + " was removed")));
  EXPECT_EQ(fs::status(directory_).permissions(), fs::perms::owner_all);
  EXPECT_THAT(tasks_found(), ElementsAre(7, 8));
  fs::remove_all(directory_);
  EXPECT_TRUE(store.keep({RunId(3), 4, TaskId(9), state_of(1)}));
  fs::remove_all(directory_);
  EXPECT_TRUE(store.restore_state({RunId(4), 4, TaskId(9), state_of(1)}));
  EXPECT_THAT(runs_found(), ElementsAre(4));
  EXPECT_EQ(log_.lines.size(), 3U);
}

// Its disk is not mounted any more: what is written there now would not be found again.
TEST_F(PendingStoreTest, ADirectoryThatIsMissingWithAllBesideItIsNamedWhenStoring) {
  const auto stored = store_.store(make_update(TaskId(7), {1}));
  ASSERT_FALSE(stored);
  EXPECT_THAT(stored.error().message(), HasSubstr(directory_.string()));
}

// --- states -------------------------------------------------------------------------------------

TEST_F(PendingStoreTest, AStateIsStoredWithItsUpdateBitForBit) {
  ASSERT_TRUE(store_.load(log_));
  const client::PendingUpdate update = update_with_state(TaskId(7), 1.5F);
  ASSERT_TRUE(store_.store(update));
  const auto found = store_.load(log_);
  ASSERT_EQ(found->pending.size(), 1U);
  EXPECT_EQ(found->pending[0].head, update.head);
  EXPECT_EQ(to_bytes(found->pending[0].payload.view()), to_bytes(update.payload.view()));
  ASSERT_NE(found->pending[0].state, nullptr);
  EXPECT_EQ(*found->pending[0].state, *update.state);
  EXPECT_TRUE(found->states.empty()) << "it is this client's from the commit on";
}

TEST_F(PendingStoreTest, AnUpdateWhoseStateIsDamagedOrCutOffIsRefused) {
  const Bytes whole = encode(update_with_state(TaskId(7), 1.5F));
  ASSERT_TRUE(decode_pending(codec_, whole));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    EXPECT_FALSE(decode_pending(codec_, flipped(whole, at))) << "byte " << at;
    EXPECT_FALSE(decode_pending(codec_, Bytes(whole.begin(), whole.begin() + at))) << at;
  }
}

TEST_F(PendingStoreTest, AKeptStateIsFoundUntilItIsForgotten) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.keep({RunId(3), 3, TaskId(8), state_of(0)}));
  ASSERT_TRUE(store_.keep({RunId(3), 4, TaskId(9), state_of(1)}));
  ASSERT_TRUE(store_.keep({RunId(3), 5, TaskId(10), state_of(2)}));
  const auto found = store_.load(log_);
  ASSERT_EQ(found->states.size(), 2U) << "the last one, and the one before ahead of it";
  EXPECT_EQ(found->states[0].round, 4U);
  EXPECT_EQ(*found->states[0].state, *state_of(1));
  EXPECT_EQ(found->states[1].run, RunId(3));
  EXPECT_EQ(found->states[1].round, 5U);
  EXPECT_EQ(found->states[1].task, TaskId(10));
  EXPECT_EQ(*found->states[1].state, *state_of(2));
  EXPECT_TRUE(store_.forget_state(RunId(3)));
  EXPECT_TRUE(store_.forget_state(RunId(3)));
  EXPECT_TRUE(store_.load(log_)->states.empty());
  EXPECT_TRUE(log_.lines.empty());
}

TEST_F(PendingStoreTest, TheStateBeforeTheLastCommitComesBackOnce) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.keep({RunId(3), 4, TaskId(9), state_of(1)}));
  ASSERT_TRUE(store_.keep({RunId(3), 5, TaskId(10), state_of(2)}));
  ASSERT_TRUE(store_.restore_state({RunId(3), 4, TaskId(9), state_of(1)}));
  const auto found = store_.load(log_);
  ASSERT_EQ(found->states.size(), 1U);
  EXPECT_EQ(found->states[0].round, 4U);
  EXPECT_EQ(*found->states[0].state, *state_of(1));
}

// The file before is of an earlier round then.
TEST_F(PendingStoreTest, AStateThatCouldNotBeKeptWhereTheDiskWasFullComesBackToo) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.keep({RunId(3), 3, TaskId(8), state_of(1)}));
  ASSERT_TRUE(store_.keep({RunId(3), 4, TaskId(9), state_of(2)}));  // 5 was not kept
  ASSERT_TRUE(store_.restore_state({RunId(3), 4, TaskId(9), state_of(2)}));
  const auto found = store_.load(log_);
  ASSERT_EQ(found->states.size(), 1U);
  EXPECT_EQ(found->states[0].round, 4U);
}

// A process was killed after it had moved the state, before it had written the next one.
TEST_F(PendingStoreTest, AnUpdateWhoseCommitWasCutOffGoesOnFromTheStateBefore) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.keep({RunId(1), 3, TaskId(6), state_of(1)}));
  ASSERT_TRUE(store_.store(update_with_state(TaskId(7), 2)));
  fs::rename(store_.file_of(RunId(1)), store_.file_before(RunId(1)));
  EXPECT_THAT(runs_found(), ElementsAre(1));
  EXPECT_THAT(tasks_found(), ElementsAre(7));
  ASSERT_TRUE(store_.keep({RunId(1), 4, TaskId(7), state_of(2)}));
  const auto found = store_.load(log_);
  ASSERT_EQ(found->states.size(), 2U);
  EXPECT_EQ(found->states[0].round, 3U);
  EXPECT_EQ(found->states[1].round, 4U);
  EXPECT_TRUE(found->pending.empty());
}

TEST_F(PendingStoreTest, ADirectoryInTheWayIsSetAside) {
  ASSERT_TRUE(store_.load(log_));
  fs::create_directories(store_.file_of(TaskId(7)) / "x");
  EXPECT_THAT(tasks_found(), ElementsAre());
  EXPECT_EQ(count(".damaged"), 1U);
  EXPECT_EQ(log_.count("is not a regular file"), 1U);
  fs::create_directories(store_.file_of(TaskId(8)) / "x");
  ASSERT_TRUE(store_.store(make_update(TaskId(8), {1})));
  EXPECT_EQ(count(".damaged"), 2U);
  EXPECT_THAT(tasks_found(), ElementsAre(8));
}

TEST_F(PendingStoreTest, AFileThatMayNotBeReadSaysWhatToDo) {
  class Locked final : public SystemDisk {
   public:
    Result<std::unique_ptr<DiskFile>> open(const fs::path& path) override {
      return rejected("no-permission", "cannot open " + path.string() + ": Permission denied");
    }
  };
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.store(make_update(TaskId(8), {1})));
  Locked locked;
  const Error error = PendingStore(locked, directory_, codec_, {}).load(log_).error();
  EXPECT_NE(error.message().find("or remove it"), std::string::npos) << error.message();
  EXPECT_THAT(tasks_found(), ElementsAre(8));
}

TEST_F(PendingStoreTest, StatesComeOldestFirst) {
  ASSERT_TRUE(store_.load(log_));
  const auto now = fs::file_time_type::clock::now();
  for (const int run : {3, 1, 2}) {
    const RunId id(static_cast<std::uint64_t>(run));
    ASSERT_TRUE(store_.keep({id, 1, TaskId(7), state_of(1)}));
    fs::last_write_time(store_.file_of(id), now - std::chrono::hours(10 - run));
  }
  EXPECT_THAT(runs_found(), ElementsAre(1, 2, 3));
}

TEST_F(PendingStoreTest, ADamagedStateIsSetAside) {
  const Bytes whole = joined(client::encode_committed({RunId(3), 4, TaskId(9), state_of(1)}));
  ASSERT_TRUE(client::decode_committed(whole));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    EXPECT_FALSE(client::decode_committed(flipped(whole, at))) << "byte " << at;
    EXPECT_FALSE(client::decode_committed(ByteView(whole).first(at))) << at;
  }
  ASSERT_TRUE(store_.load(log_));
  put(RunId(3), ByteView(whole).first(whole.size() - 1));
  put(RunId(4), whole);  // under another run's name
  ASSERT_TRUE(store_.keep({RunId(5), 4, TaskId(9), state_of(1)}));
  EXPECT_THAT(runs_found(), ElementsAre(5));
  EXPECT_EQ(count(".damaged"), 2U);
  EXPECT_EQ(log_.count("set aside"), 2U);
  EXPECT_THAT(runs_found(), ElementsAre(5));
  EXPECT_EQ(log_.lines.size(), 2U);
}

TEST_F(PendingStoreTest, WhereTheLastStateIsDamagedTheOneBeforeIsFoundAndNamed) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.keep({RunId(3), 4, TaskId(9), state_of(1)}));
  ASSERT_TRUE(store_.keep({RunId(3), 5, TaskId(10), state_of(2)}));
  put(RunId(3), as_bytes("rubbish"));
  const auto found = store_.load(log_);
  ASSERT_EQ(found->states.size(), 1U);
  EXPECT_EQ(found->states[0].round, 4U);
  EXPECT_EQ(log_.count("3.before has the state of round 4"), 1U);
  std::ofstream(store_.file_before(RunId(3)), std::ios::binary) << "rubbish";
  EXPECT_TRUE(store_.load(log_)->states.empty());
  EXPECT_EQ(count(".damaged"), 2U) << "each under a name of its own";
}

TEST_F(PendingStoreTest, AStateThatCannotBeWrittenChangesNothing) {
  class Full final : public SystemDisk {
   public:
    Result<void> write(const fs::path&, std::span<const SharedBytes>) override {
      return overloaded("disk-full", "no space");
    }
  };
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.keep({RunId(3), 4, TaskId(9), state_of(1)}));
  ASSERT_TRUE(store_.keep({RunId(3), 5, TaskId(10), state_of(2)}));
  Full full;
  const PendingStore failing(full, directory_, codec_, {});
  EXPECT_EQ(failing.keep({RunId(3), 6, TaskId(11), state_of(3)}).error().code(), "disk-full");
  const auto found = store_.load(log_);
  ASSERT_EQ(found->states.size(), 2U);
  EXPECT_EQ(found->states[0].round, 4U);
  EXPECT_EQ(found->states[1].round, 5U);
}

// A process was killed after it had kept the state, before it had forgotten the update.
TEST_F(PendingStoreTest, AnUpdateThatItsStateNamesHasCounted) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.store(update_with_state(TaskId(7), 1)));
  ASSERT_TRUE(store_.store(update_with_state(TaskId(8), 2)));
  ASSERT_TRUE(store_.keep({RunId(1), 3, TaskId(7), state_of(1)}));
  EXPECT_THAT(tasks_found(), ElementsAre(8));
  EXPECT_FALSE(fs::exists(store_.file_of(TaskId(7))));
  EXPECT_THAT(runs_found(), ElementsAre(1));
  EXPECT_TRUE(log_.lines.empty());
}

TEST_F(PendingStoreTest, AnUpdateWhoseStatesFileIsDamagedIsOfferedAgain) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.store(update_with_state(TaskId(7), 1)));
  put(RunId(1), as_bytes("half of it"));
  EXPECT_THAT(tasks_found(), ElementsAre(7));
}

// --- earlier versions ---------------------------------------------------------------------------

// As the version before states wrote make_update(TaskId(7), {1, -2.5, 3}).
constexpr std::string_view kFileWithoutState =
    "53544c50454e44313a232ae11d85950fd0000000000000000c00000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000019000000000000000400030007000000000000000000000000002840"
    "0c00000000000000274161e56c349a2a0800000002000100210000001f000000"
    "3100000017000000010000000000000002000000000000000100000002010000"
    "5e4d73fb7853c6947a59215cb3fb869bc3bf8f59c358e094b541a9f9eed1e7c8"
    "0400000002000100010000000000000003000000000000000100000032000000"
    "64656c74610000000400000001000100000000000000e03f010000005a000000"
    "747261696e5f6c6f737300000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000803f000020c000004040";

TEST_F(PendingStoreTest, AFileOfTheVersionBeforeStatesIsRead) {
  const client::PendingUpdate update = make_update(TaskId(7), {1, -2.5F, 3});
  ASSERT_TRUE(store_.load(log_));
  put(TaskId(7), *from_hex(kFileWithoutState));
  const auto found = store_.load(log_);
  ASSERT_EQ(found->pending.size(), 1U);
  EXPECT_EQ(found->pending[0].head, update.head);
  EXPECT_EQ(to_bytes(found->pending[0].payload.view()), to_bytes(update.payload.view()));
  EXPECT_EQ(found->pending[0].state, nullptr);
  // That version reads today's file too: it passes over the fields that the head has got since.
  const Bytes today = encode(update);
  const Bytes then = *from_hex(kFileWithoutState);
  constexpr std::size_t kPayloadSizesAt = 24;
  EXPECT_TRUE(std::equal(today.begin() + kPayloadSizesAt, today.begin() + 64,
                         then.begin() + kPayloadSizesAt));
  EXPECT_TRUE(std::equal(today.end() - 12, today.end(), then.end() - 12));
}

}  // namespace
}  // namespace starling::edge_client
