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
using client::PendingStore;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::make_update;
using testing::RecordingLog;
using testing::TemporaryDirectory;

class PendingStoreTest : public ::testing::Test {
 protected:
  // What a new process finds.
  std::vector<std::uint64_t> tasks_found(PendingStore::Options options = {}) {
    std::vector<std::uint64_t> tasks;
    const auto updates = PendingStore(disk_, directory_, codec_, options).load(log_);
    EXPECT_TRUE(updates) << updates.error().message();
    for (const auto& update : *updates) tasks.push_back(update.head.task.value());
    return tasks;
  }
  Bytes content(TaskId task) { return *read_file(store_.file_of(task), 1 << 20); }
  void put(TaskId task, ByteView bytes) {
    std::ofstream(store_.file_of(task), std::ios::binary) << as_text(bytes);
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
  const client::HeadCodec codec_{wire::encode_update_head, wire::decode_update_head,
                                 wire::kHeaderBytesMax};
  PendingStore store_{disk_, directory_, codec_, {}};
  RecordingLog log_;
};

TEST_F(PendingStoreTest, WhatIsStoredIsFoundBitForBit) {
  ASSERT_TRUE(store_.load(log_)->empty());
  client::PendingUpdate update = make_update(TaskId(7), {1.5F, -0.0F, 3e-42F});
  update.head.scalars["train_loss"] = 0.1 + 0.2;
  ASSERT_TRUE(store_.store(update));
  const auto found = store_.load(log_);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().head, update.head);
  EXPECT_EQ(to_bytes(found->front().payload.view()), to_bytes(update.payload.view()));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->front().payload.view().data()) % alignof(float),
            0U);
  EXPECT_TRUE(log_.lines.empty());
}

TEST_F(PendingStoreTest, StoringAgainReplacesAndForgettingTwiceIsFine) {
  ASSERT_TRUE(store_.load(log_));
  ASSERT_TRUE(store_.store(make_update(TaskId(7), {1})));
  ASSERT_TRUE(store_.store(make_update(TaskId(7), {2, 3})));
  EXPECT_EQ(store_.load(log_)->front().payload.size(), 8U);
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
  Bytes whole = *encode_pending_head(codec_, update.head);
  whole.insert(whole.end(), update.payload.view().begin(), update.payload.view().end());
  ASSERT_TRUE(decode_pending(codec_, whole));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    Bytes flipped = whole;
    flipped[at] ^= std::byte{0x40};
    const auto decoded = decode_pending(codec_, flipped);
    ASSERT_FALSE(decoded) << "byte " << at;
    EXPECT_EQ(decoded.error().code(), "pending-damaged");
  }
}

// An attacker who can write the file can also make its checksums right.
TEST_F(PendingStoreTest, SizesThatLieAreRefused) {
  const client::PendingUpdate update = make_update(TaskId(7), {1, 2, 3});
  const auto forge = [&](update::ContributionHead head, std::size_t payload_bytes) {
    Bytes file = *encode_pending_head(codec_, head);
    file.resize(file.size() + payload_bytes);
    return decode_pending(codec_, file);
  };
  update::ContributionHead head = update.head;
  head.payload_bytes = std::uint64_t{1} << 49;  // of which 12 bytes are there
  EXPECT_FALSE(forge(head, 12));
  head.payload_bytes = 8;  // less than its vectors
  EXPECT_FALSE(forge(head, 8));
  Bytes file = *encode_pending_head(codec_, update.head);
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
  EXPECT_THAT(tasks_found({.payload_bytes_max = 1000}), ElementsAre());
  EXPECT_EQ(count(".damaged"), 1U);
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

TEST_F(PendingStoreTest, WhatACrashLeavesBehindIsSweptAndOthersFilesStay) {
  ASSERT_TRUE(store_.load(log_));
  std::ofstream(directory_ / ".0000000000000007.update.abc123.tmp") << "half of it";
  std::ofstream(directory_ / "notes.txt") << "mine";
  fs::create_directory(directory_ / "0000000000000009.update");
  EXPECT_THAT(tasks_found(), ElementsAre());
  EXPECT_TRUE(fs::exists(directory_ / "notes.txt"));
  EXPECT_FALSE(fs::exists(directory_ / ".0000000000000007.update.abc123.tmp"));
}

TEST_F(PendingStoreTest, AMissingDirectoryIsNamedWhenStoring) {
  const auto stored = store_.store(make_update(TaskId(7), {1}));
  ASSERT_FALSE(stored);
  EXPECT_THAT(stored.error().message(), HasSubstr(directory_.string()));
}

}  // namespace
}  // namespace starling::edge_client
