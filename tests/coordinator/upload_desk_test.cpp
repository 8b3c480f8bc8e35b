// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/upload_desk.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kUpload = 4096;

class UploadDeskTest : public ::testing::Test {
 protected:
  // Room for as many uploads in memory and on disk.
  store::UploadSpool::Options room(std::uint64_t memory, std::uint64_t disk) const {
    return {.directory = directory_.path() / "spool",
            .memory_bytes_max = memory * kUpload,
            .disk_bytes_max = disk * kUpload};
  }
  // Uploads of kUpload bytes are kept on disk.
  store::UploadSpool::Options kept_room(std::uint64_t disk) const {
    store::UploadSpool::Options options = room(0, disk);
    options.kept_bytes_min = kUpload;
    return options;
  }
  static store::UploadKey key(std::uint64_t task, std::uint64_t bytes = kUpload,
                              std::uint64_t checksum = 1) {
    return {TaskId(task), RunId(1), bytes, checksum};
  }
  std::string open_of(UploadDesk& desk, std::uint64_t run, std::uint64_t task) const {
    return code_of(desk.open({TaskId(task), RunId(run), kUpload, 1}, now));
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(directory_.path() / "spool"), {}));
  }
  static Bytes content(std::uint64_t seed) {
    return Bytes(kUpload, static_cast<std::byte>(seed + 1));
  }
  // The first `bytes` of its content, as they come in a connection's buffer.
  void receive(UploadDesk& desk, std::uint64_t task, std::size_t bytes,
               std::uint64_t offset = 0) const {
    const Bytes whole = content(task);
    desk.write(TaskId(task), offset, SharedBytes(nullptr, ByteView(whole).first(bytes)), now);
  }
  void fill(UploadDesk& desk, std::uint64_t task) const { receive(desk, task, kUpload); }
  static Bytes bytes_of(const update::Payload& payload) {
    Bytes bytes(payload.size());
    EXPECT_TRUE(payload.read(0, bytes));
    return bytes;
  }
  static std::string code_of(const Result<std::uint64_t>& opened) {
    return opened ? "opened" : opened.error().code();
  }

  TimePoint now{};
  SystemDisk disk_;
  testing::TemporaryDirectory directory_;
};

TEST_F(UploadDeskTest, SumsWhatWasReceivedInMemoryAndOnDisk) {
  UploadDesk desk(disk_, room(1, 2));
  for (std::uint64_t task = 0; task < 3; ++task) {
    ASSERT_EQ(desk.open(key(task, kUpload), now).value(), 0U);
    receive(desk, task, 1000);
    EXPECT_EQ(desk.open(key(task, kUpload), now).value(), 1000U) << "it is resumed";
    fill(desk, task);
  }
  for (std::uint64_t task = 0; task < 3; ++task) {
    const update::Payload payload = desk.begin_sum(TaskId(task)).value();
    for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(bytes_of(payload), content(task));
    desk.end_sum(TaskId(task), true);
  }
}

TEST_F(UploadDeskTest, KeepsAWholeUpdateThatIsSharedAsItCame) {
  UploadDesk desk(disk_, room(1, 0));
  const SharedBytes whole = SharedBytes::own(content(1));
  ASSERT_TRUE(desk.open(key(1, kUpload), now));
  desk.write(TaskId(1), 0, whole, now);
  EXPECT_EQ(desk.open(key(1, kUpload), now).value(), kUpload) << "all of it is there";
  EXPECT_EQ(code_of(desk.open(key(2, kUpload), now)), "opened") << "it takes no room";
  EXPECT_EQ(desk.begin_sum(TaskId(1)).value().in_memory()->view().data(), whole.view().data());
  desk.end_sum(TaskId(1), true);
  desk.write(TaskId(2), 0, whole.slice(0, 1000), now);  // a part of one is copied
  EXPECT_EQ(desk.open(key(2, kUpload), now).value(), 1000U);
}

TEST_F(UploadDeskTest, GivesRoomInTheOrderOfAsking) {
  UploadDesk desk(disk_, room(1, 1));
  ASSERT_TRUE(desk.open(key(0, kUpload), now));
  ASSERT_TRUE(desk.open(key(1, kUpload), now));
  for (const std::uint64_t task : {2U, 3U, 4U}) {
    EXPECT_EQ(code_of(desk.open(key(task, kUpload), now)), "spool-full") << task;
  }
  desk.drop(TaskId(3));  // waits no more
  fill(desk, 0);
  ASSERT_TRUE(desk.begin_sum(TaskId(0)));
  desk.end_sum(TaskId(0), true);
  EXPECT_EQ(code_of(desk.open(key(5, kUpload), now)), "spool-full") << "the room is another's";
  EXPECT_EQ(code_of(desk.open(key(4, kUpload), now)), "spool-full") << "the room is another's";
  EXPECT_EQ(code_of(desk.open(key(2, kUpload), now)), "opened");
  desk.drop(TaskId(1));
  desk.drop(TaskId(2));
  EXPECT_EQ(code_of(desk.open(key(4, kUpload), now)), "opened");
  EXPECT_EQ(code_of(desk.open(key(5, kUpload), now)), "opened");
}

TEST_F(UploadDeskTest, ASmallUploadDoesNotOvertakeOneThatWaits) {
  UploadDesk desk(disk_, room(2, 0));
  ASSERT_TRUE(desk.open(key(0, kUpload), now));
  EXPECT_EQ(code_of(desk.open(key(1, 2 * kUpload), now)), "spool-full");
  EXPECT_EQ(code_of(desk.open(key(2, 64), now)), "spool-full");
  EXPECT_EQ(code_of(desk.open(key(3, 3 * kUpload), now)), "spool-full") << "not its turn yet";
  desk.drop(TaskId(0));
  EXPECT_EQ(code_of(desk.open(key(1, 2 * kUpload), now)), "opened");
  desk.drop(TaskId(1));
  EXPECT_EQ(code_of(desk.open(key(2, 64), now)), "opened");
  EXPECT_EQ(code_of(desk.open(key(3, 3 * kUpload), now)), "upload-too-large");
}

TEST_F(UploadDeskTest, PhasesThatNeedTheirUpdatesTogetherDoNotShareOutTheRoom) {
  UploadDesk desk(disk_, room(1, 2));
  for (const std::uint64_t run : {2U, 3U, 4U}) desk.expect_together(RunId(run), 2, kUpload);
  EXPECT_EQ(open_of(desk, 2, 20), "opened");
  EXPECT_EQ(open_of(desk, 3, 30), "spool-full") << "there is room for one of the two";
  EXPECT_EQ(open_of(desk, 1, 10), "opened") << "which one that is needed alone may have";
  EXPECT_EQ(open_of(desk, 1, 11), "spool-full") << "the other one is promised";
  EXPECT_EQ(open_of(desk, 2, 21), "opened");
  EXPECT_EQ(open_of(desk, 2, 22), "spool-full") << "more than the phase needs";
  for (const std::uint64_t task : {20U, 21U}) {
    fill(desk, task);
    ASSERT_TRUE(desk.begin_sum(TaskId(task)));
  }
  desk.drop(TaskId(22));
  desk.drop(TaskId(11));
  desk.drop(TaskId(10));
  EXPECT_EQ(open_of(desk, 4, 40), "spool-full") << "behind phase 3";
  EXPECT_EQ(open_of(desk, 3, 30), "spool-full") << "phase 2 goes on";
  for (const std::uint64_t task : {20U, 21U}) desk.end_sum(TaskId(task), true);
  desk.end_phase(RunId(2));
  EXPECT_EQ(open_of(desk, 4, 40), "spool-full");
  for (const std::uint64_t task : {30U, 31U}) EXPECT_EQ(open_of(desk, 3, task), "opened");
}

TEST_F(UploadDeskTest, AFullDiskOfOnePhaseDoesNotHoldUpOthers) {
  store::UploadSpool::Options options = room(1, 0);
  options.disk_bytes_max = std::uint64_t{1} << 60;  // more than any disk has
  UploadDesk desk(disk_, options);
  desk.expect_together(RunId(2), 3, std::uint64_t{1} << 58);
  EXPECT_EQ(open_of(desk, 2, 20), "disk-full");
  EXPECT_EQ(open_of(desk, 1, 10), "opened");
  EXPECT_EQ(open_of(desk, 2, 21), "disk-full");
}

// Each attempt costs calls of the file system, and there may be as many as the cohort is large.
TEST_F(UploadDeskTest, AfterOneRefusalThePhasesOtherUpdatesAreNotTried) {
  UploadDesk desk(disk_, room(3, 0));
  desk.expect_together(RunId(2), 2, kUpload);
  for (const std::uint64_t task : {20U, 21U}) ASSERT_EQ(open_of(desk, 2, task), "opened");
  ASSERT_TRUE(desk.open(key(10, kUpload - 64), now));
  EXPECT_EQ(open_of(desk, 2, 22), "spool-full");
  EXPECT_EQ(code_of(desk.open({TaskId(23), RunId(2), 64, 1}, now)), "spool-full") << "it would fit";
  EXPECT_EQ(code_of(desk.open(key(11, 64), now)), "opened");
}

TEST_F(UploadDeskTest, WhoFailsLeavesItsRoomToAnotherOfItsPhase) {
  UploadDesk desk(disk_, room(0, 3));
  desk.expect_together(RunId(2), 2, kUpload);
  for (const std::uint64_t task : {20U, 21U}) ASSERT_EQ(open_of(desk, 2, task), "opened");
  ASSERT_EQ(open_of(desk, 1, 10), "opened");
  EXPECT_EQ(open_of(desk, 1, 11), "spool-full");
  EXPECT_EQ(open_of(desk, 2, 22), "spool-full");
  desk.drop(TaskId(20));
  EXPECT_EQ(open_of(desk, 1, 11), "spool-full");
  EXPECT_EQ(open_of(desk, 2, 22), "opened");
}

TEST_F(UploadDeskTest, AWholeUpdateThatIsSharedNeedsNoRoomOfItsPhase) {
  UploadDesk desk(disk_, room(1, 1));
  desk.expect_together(RunId(2), 2, kUpload);
  for (const std::uint64_t task : {20U, 21U}) {
    ASSERT_EQ(open_of(desk, 2, task), "opened");
    desk.write(TaskId(task), 0, SharedBytes::own(content(task)), now);
  }
  for (const std::uint64_t task : {10U, 11U}) EXPECT_EQ(open_of(desk, 1, task), "opened");
}

TEST_F(UploadDeskTest, OneThatAsksAgainKeepsItsPlace) {
  UploadDesk desk(disk_, room(2, 0));
  ASSERT_TRUE(desk.open(key(0, kUpload), now));
  EXPECT_EQ(code_of(desk.open(key(1, 2 * kUpload), now)), "spool-full");
  EXPECT_EQ(code_of(desk.open(key(2, 64), now)), "spool-full");
  EXPECT_EQ(code_of(desk.open(key(1, 2 * kUpload), now)), "spool-full");
  desk.drop(TaskId(0));
  EXPECT_EQ(code_of(desk.open(key(1, 2 * kUpload), now)), "opened");
}

TEST_F(UploadDeskTest, OneThatWaitsMakesNoFile) {
  namespace fs = std::filesystem;
  UploadDesk desk(disk_, kept_room(1));
  ASSERT_TRUE(desk.open(key(1), now));
  const fs::file_time_type before(std::chrono::seconds(1));
  fs::last_write_time(directory_.path() / "spool", before);
  for (int i = 0; i < 3; ++i) {
    for (const std::uint64_t task : {2U, 3U})
      EXPECT_EQ(code_of(desk.open(key(task), now)), "spool-full");
  }
  EXPECT_EQ(fs::last_write_time(directory_.path() / "spool"), before);
  desk.drop(TaskId(1));
  EXPECT_EQ(code_of(desk.open(key(2), now)), "opened");
}

TEST_F(UploadDeskTest, KeepsNoBufferWhenNothingIsReceived) {
  UploadDesk desk(disk_, room(2, 0));
  ASSERT_TRUE(desk.open(key(0, kUpload), now));
  ASSERT_TRUE(desk.open(key(1, kUpload), now));
  EXPECT_EQ(desk.memory_bytes(), 2 * kUpload);
  desk.drop(TaskId(0));
  EXPECT_EQ(desk.memory_bytes(), 2 * kUpload) << "idle, for the next one";
  fill(desk, 1);
  ASSERT_TRUE(desk.begin_sum(TaskId(1)));
  EXPECT_EQ(desk.memory_bytes(), 2 * kUpload);
  desk.end_sum(TaskId(1), true);
  EXPECT_EQ(desk.memory_bytes(), 0U);
}

TEST_F(UploadDeskTest, SaysWhyAnUpdateCannotBeSummed) {
  UploadDesk desk(disk_, room(1, 1));
  EXPECT_EQ(desk.begin_sum(TaskId(7)).error().code(), "upload-incomplete");
  ASSERT_TRUE(desk.open(key(1, kUpload), now));
  receive(desk, 1, 10, 100);
  EXPECT_EQ(desk.begin_sum(TaskId(1)).error().code(), "upload-gap");
  ASSERT_TRUE(desk.open(key(1, kUpload), now));
  receive(desk, 1, 10);
  EXPECT_EQ(desk.begin_sum(TaskId(1)).error().code(), "upload-incomplete");
}

TEST_F(UploadDeskTest, PartsWholesAndCountedUpdatesOutliveTheProcess) {
  {
    UploadDesk desk(disk_, kept_room(8));
    for (const std::uint64_t task : {1U, 2U, 3U}) ASSERT_EQ(desk.open(key(task), now).value(), 0U);
    receive(desk, 1, 1000);
    fill(desk, 2);
    fill(desk, 3);
    ASSERT_TRUE(desk.begin_sum(TaskId(3)));
    EXPECT_FALSE(desk.is_resumed(TaskId(3)));
    desk.end_sum(TaskId(3), true);
  }
  UploadDesk desk(disk_, kept_room(8));
  desk.forget_all_but({TaskId(1), TaskId(2), TaskId(3)});
  EXPECT_EQ(desk.open(key(1), now).value(), 1000U);
  for (const std::uint64_t task : {2U, 3U}) EXPECT_EQ(desk.open(key(task), now).value(), kUpload);
  fill(desk, 1);
  for (const std::uint64_t task : {1U, 2U, 3U}) {
    EXPECT_EQ(bytes_of(desk.begin_sum(TaskId(task)).value()), content(task));
    EXPECT_TRUE(desk.is_resumed(TaskId(task)));
    desk.end_sum(TaskId(task), true);
  }
  EXPECT_EQ(files(), 3U) << "the sum is lost with the process";
  desk.end_phase(RunId(2));
  EXPECT_EQ(files(), 3U) << "another run's";
  desk.end_phase(RunId(1));
  EXPECT_EQ(files(), 0U);
}

TEST_F(UploadDeskTest, WhatDidNotCountIsNotContinued) {
  UploadDesk desk(disk_, kept_room(8));
  for (const std::uint64_t task : {1U, 2U, 3U, 4U}) {
    ASSERT_TRUE(desk.open(key(task), now));
    fill(desk, task);
  }
  ASSERT_TRUE(desk.begin_sum(TaskId(1)));
  desk.end_sum(TaskId(1), false);
  EXPECT_EQ(desk.open(key(1), now).value(), 0U) << "its checksum was wrong";
  desk.drop(TaskId(2));
  EXPECT_EQ(desk.open(key(2), now).value(), 0U);
  EXPECT_EQ(desk.open(key(3, kUpload, 2), now).value(), 0U) << "another update of the task";
  ASSERT_TRUE(desk.begin_sum(TaskId(4)));
  desk.end_phase(RunId(1));  // the run was stopped meanwhile
  desk.end_sum(TaskId(4), true);
  EXPECT_EQ(desk.open(key(4), now).value(), 0U);
}

TEST_F(UploadDeskTest, KeptUpdatesMakeRoomForNewOnes) {
  UploadDesk desk(disk_, kept_room(2));
  for (std::uint64_t task = 1; task <= 20; ++task) {
    ASSERT_EQ(desk.open(key(task), now).value(), 0U) << task;
    fill(desk, task);
    ASSERT_TRUE(desk.begin_sum(TaskId(task)));
    desk.end_sum(TaskId(task), true);
    EXPECT_LE(files(), 2U);
  }
}

// --- uploads without progress -------------------------------------------------------------------

TEST_F(UploadDeskTest, AnUploadWithoutProgressLosesItsRoomToOneThatWaits) {
  UploadDesk desk(disk_, room(1, 1));
  for (const std::uint64_t task : {1U, 2U}) ASSERT_TRUE(desk.open(key(task), now));
  receive(desk, 1, 1000);
  now += kProgressTime - 1ms;
  EXPECT_EQ(code_of(desk.open(key(3), now)), "spool-full") << "there is time yet";
  ASSERT_TRUE(desk.open(key(2), now)) << "to be offered again is no progress";
  now += 1ms;
  EXPECT_EQ(code_of(desk.open(key(3), now)), "opened");
  EXPECT_EQ(desk.take_stalled(), std::vector{TaskId(1)}) << "one is enough";
  EXPECT_TRUE(desk.take_stalled().empty());
  EXPECT_EQ(code_of(desk.open(key(4), now)), "opened");
  EXPECT_EQ(desk.take_stalled(), std::vector{TaskId(2)});
  EXPECT_EQ(code_of(desk.open(key(1), now)), "spool-full") << "it waits behind the others";
  desk.drop(TaskId(3));
  EXPECT_EQ(code_of(desk.open(key(1), now)), "opened");
}

TEST_F(UploadDeskTest, WhatCameOfAnUploadThatLostItsRoomIsKeptIfItFits) {
  UploadDesk desk(disk_, kept_room(2));
  ASSERT_TRUE(desk.open(key(1, 2 * kUpload), now));
  receive(desk, 1, 1000);
  now += kProgressTime;
  EXPECT_EQ(code_of(desk.open(key(2), now)), "opened");
  ASSERT_EQ(desk.take_stalled(), std::vector{TaskId(1)});
  desk.drop(TaskId(2));
  EXPECT_EQ(desk.open(key(1, 2 * kUpload), now).value(), 1000U);
}

TEST_F(UploadDeskTest, WhileNothingWaitsAnUploadMayTakeItsTime) {
  UploadDesk desk(disk_, room(1, 1));
  for (const std::uint64_t task : {1U, 2U}) ASSERT_TRUE(desk.open(key(task), now));
  now += 24h;
  EXPECT_TRUE(desk.take_stalled().empty());
  EXPECT_EQ(desk.open(key(1), now).value(), 0U);
  fill(desk, 1);
  EXPECT_TRUE(desk.begin_sum(TaskId(1)));
  EXPECT_EQ(code_of(desk.open(key(3), now)), "opened")
      << "one that is whole is not without progress";
  EXPECT_EQ(desk.take_stalled(), std::vector{TaskId(2)});
  desk.end_sum(TaskId(1), true);
}

TEST_F(UploadDeskTest, ByteAfterByteIsNoProgressAndASlowLinkIs) {
  constexpr std::uint64_t kLarge = 100 * kProgressBytes;
  store::UploadSpool::Options options = room(0, 0);
  options.memory_bytes_max = 2 * kLarge;
  UploadDesk desk(disk_, options);
  for (const std::uint64_t task : {1U, 2U}) ASSERT_TRUE(desk.open(key(task, kLarge), now));
  const Bytes zeros(20'000);
  for (std::uint64_t second = 0; second < 60; ++second) {
    desk.write(TaskId(1), second, SharedBytes(nullptr, ByteView(zeros).first(1)), now);
    desk.write(TaskId(2), second * zeros.size(), SharedBytes(nullptr, zeros), now);
    now += 1s;
  }
  EXPECT_EQ(code_of(desk.open(key(3, kLarge), now)), "opened");
  EXPECT_EQ(desk.take_stalled(), std::vector{TaskId(1)});
  EXPECT_EQ(code_of(desk.open(key(4, kLarge), now)), "spool-full");
}

TEST_F(UploadDeskTest, RoomThatWasPromisedToAnotherPhaseHelpsNobodyWhoWaits) {
  UploadDesk desk(disk_, room(1, 2));
  desk.expect_together(RunId(2), 2, kUpload);
  for (const std::uint64_t task : {20U, 21U}) ASSERT_EQ(open_of(desk, 2, task), "opened");
  ASSERT_EQ(open_of(desk, 1, 10), "opened");
  now += kProgressTime;
  EXPECT_EQ(open_of(desk, 1, 11), "opened");
  EXPECT_EQ(desk.take_stalled(), std::vector{TaskId(10)});
  EXPECT_EQ(open_of(desk, 1, 12), "spool-full");
  EXPECT_TRUE(desk.take_stalled().empty());
  EXPECT_EQ(open_of(desk, 2, 22), "opened") << "one of the phase itself gets it";
  EXPECT_EQ(desk.take_stalled(), std::vector{TaskId(20)});
}

// The first call that says so begins its time, however long it waited for the room before.
TEST_F(UploadDeskTest, ItsTimeBeginsWhenTheSenderCanKnowOfTheRoom) {
  UploadDesk desk(disk_, room(1, 0));
  ASSERT_TRUE(desk.open(key(1), now));
  EXPECT_EQ(code_of(desk.open(key(2), now)), "spool-full");
  desk.drop(TaskId(1));  // its room is given to 2, which has not asked again
  now += kProgressTime;
  EXPECT_EQ(code_of(desk.open(key(3), now)), "spool-full");
  ASSERT_TRUE(desk.open(key(2), now));
  now += kProgressTime;
  EXPECT_EQ(code_of(desk.open(key(3), now)), "opened");
}

}  // namespace
}  // namespace starling::coordinator
