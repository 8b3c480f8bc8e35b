// SPDX-License-Identifier: Apache-2.0
// What a process finds on its simulated disk, after every fault that a change may have.
#include "core/sim/simulated_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling::sim {
namespace {

namespace fs = std::filesystem;
using Fault = SimulatedDisk::Fault;
using ::testing::ElementsAre;

class SimulatedDiskTest : public ::testing::Test {
 protected:
  SimulatedDiskTest() { EXPECT_TRUE(disk.make_directory("d", Disk::Access::kShared)); }

  Result<void> write(const std::string& path, std::string_view content) {
    const SharedBytes whole = SharedBytes::own(to_bytes(as_bytes(content)));
    const std::array<SharedBytes, 2> parts = {whole.slice(0, 1), whole.slice(1, whole.size() - 1)};
    return disk.write(path, parts);
  }
  std::string content(const std::string& path) {
    const auto bytes = read_file(disk, path, 1000);
    return bytes ? std::string(as_text(*bytes)) : bytes.error().code();
  }
  std::vector<std::string> names(const std::string& directory) {
    std::vector<std::string> names;
    for (const DiskEntry& entry : disk.list(directory).value()) names.push_back(entry.name);
    return names;
  }
  void next_change(Fault fault) {
    disk.set_fault_injector([fault, used = false](const fs::path&) mutable {
      return std::exchange(used, true) ? Fault::kNone : fault;
    });
  }
  template <class Change>
  void expect_crash(const Change& change) {
    try {
      (void)change();
      FAIL() << "the process lives";
    } catch (const ProcessCrash& crash) {
      EXPECT_EQ(crash.process, 7U);
    }
  }

  SimulatedDisk disk{7};
};

TEST_F(SimulatedDiskTest, HoldsWhatWasWritten) {
  ASSERT_TRUE(write("d/a", "hello"));
  ASSERT_TRUE(write("d/b", "you"));
  EXPECT_EQ(content("d/a"), "hello");
  ASSERT_TRUE(write("d/a", "again"));
  EXPECT_EQ(content("d/a"), "again");
  EXPECT_EQ(content("d/c"), "file-missing");
  EXPECT_EQ(read_file(disk, "d/a", 4).error().code(), "file-too-large");
  EXPECT_THAT(names("d"), ElementsAre("a", "b"));
  EXPECT_EQ(disk.bytes(), 8U);
}

TEST_F(SimulatedDiskTest, ReadsAnyRangeOfSeveralParts) {
  ASSERT_TRUE(write("d/a", "hello"));
  const auto file = disk.open("d/a").value();
  ASSERT_TRUE(write("d/a", "other"));  // what is open stays
  for (std::size_t from = 0; from <= 5; ++from) {
    Bytes piece(5 - from);
    ASSERT_TRUE(file->read(from, piece));
    EXPECT_EQ(as_text(piece), std::string_view("hello").substr(from));
  }
}

TEST_F(SimulatedDiskTest, SharesPartsThatHaveAnOwnerAndCopiesOthers) {
  const SharedBytes owned = SharedBytes::own(Bytes(100));
  Bytes borrowed(3, std::byte{1});
  const std::array<SharedBytes, 2> parts = {owned, SharedBytes(nullptr, borrowed)};
  ASSERT_TRUE(disk.write("d/a", parts));
  EXPECT_EQ(owned.owner().use_count(), 3) << "here, in parts, and on the disk";
  borrowed.assign(3, std::byte{2});
  EXPECT_EQ(read_file(disk, "d/a", 1000).value().back(), std::byte{1});
}

TEST_F(SimulatedDiskTest, DirectoriesMustExistAndAreListed) {
  EXPECT_EQ(write("other/a", "xy").error().code(), "file-missing");
  ASSERT_TRUE(disk.make_directory("d/e/f", Disk::Access::kOwner));
  ASSERT_TRUE(write("d/e/f/a", "xy"));
  EXPECT_THAT(names("d"), ElementsAre("e"));
  EXPECT_THAT(names("d/e"), ElementsAre("f"));
  EXPECT_THAT(names("nowhere"), ElementsAre());
}

TEST_F(SimulatedDiskTest, RemovesAndRenames) {
  ASSERT_TRUE(write("d/a", "one"));
  ASSERT_TRUE(write("d/b", "two"));
  ASSERT_TRUE(disk.rename("d/a", "d/b"));
  EXPECT_THAT(names("d"), ElementsAre("b"));
  EXPECT_EQ(content("d/b"), "one");
  EXPECT_EQ(disk.rename("d/a", "d/c").error().code(), "file-missing");
  EXPECT_TRUE(disk.remove("d/b"));
  EXPECT_TRUE(disk.remove("d/b"));
  EXPECT_EQ(disk.bytes(), 0U);
}

TEST_F(SimulatedDiskTest, AFailedOrRefusedChangeLeavesTheOldFile) {
  ASSERT_TRUE(write("d/a", "old"));
  next_change(Fault::kFailedSync);
  EXPECT_EQ(write("d/a", "new").error().kind(), ErrorKind::kInternal);
  next_change(Fault::kFull);
  EXPECT_EQ(write("d/a", "new").error().kind(), ErrorKind::kOverloaded);
  EXPECT_EQ(content("d/a"), "old");
  EXPECT_THAT(names("d"), ElementsAre("a"));
  EXPECT_TRUE(write("d/a", "new"));
}

TEST_F(SimulatedDiskTest, AWriteInWhichTheProcessIsKilledLeavesTheOldTheNewOrATemporary) {
  ASSERT_TRUE(write("d/a", "old"));
  next_change(Fault::kCrashBefore);
  expect_crash([&] { return write("d/a", "newer"); });
  EXPECT_EQ(content("d/a"), "old");
  next_change(Fault::kTornWrite);
  expect_crash([&] { return write("d/a", "newer"); });
  EXPECT_EQ(content("d/a"), "old");
  EXPECT_THAT(names("d"), ElementsAre(".a.torn.tmp", "a"));
  EXPECT_EQ(content("d/.a.torn.tmp"), "ne");
  sweep_temporaries(disk, "d");
  EXPECT_THAT(names("d"), ElementsAre("a"));
  next_change(Fault::kCrashAfter);
  expect_crash([&] { return write("d/a", "newer"); });
  EXPECT_EQ(content("d/a"), "newer");
}

TEST_F(SimulatedDiskTest, OtherChangesAreDoneOrNot) {
  ASSERT_TRUE(write("d/a", "old"));
  for (const Fault fault : {Fault::kCrashBefore, Fault::kTornWrite}) {
    next_change(fault);
    expect_crash([&] { return disk.remove("d/a"); });
    EXPECT_EQ(content("d/a"), "old");
  }
  next_change(Fault::kCrashAfter);
  expect_crash([&] { return disk.remove("d/a"); });
  EXPECT_EQ(content("d/a"), "file-missing");
}

TEST_F(SimulatedDiskTest, LaterWritesAreNewer) {
  ASSERT_TRUE(write("d/b", "first"));
  ASSERT_TRUE(write("d/a", "second"));
  const auto entries = disk.list("d").value();
  EXPECT_GT(entries[0].written, entries[1].written);
}

// --- files that grow ----------------------------------------------------------------------------

class GrowingFileTest : public SimulatedDiskTest {
 protected:
  std::unique_ptr<GrowingFile> open(const std::string& path) {
    return disk.open_growing(path, Disk::Content::kKept).value();
  }
  static Result<void> append(GrowingFile& file, std::string_view text) {
    return file.append(as_bytes(text));
  }
  static std::string content(GrowingFile& file) {
    Bytes bytes(file.size());
    EXPECT_TRUE(file.read(0, bytes));
    return std::string(as_text(bytes));
  }
  using SimulatedDiskTest::content;
};

TEST_F(GrowingFileTest, GrowsAndIsContinuedOrBegunAnew) {
  {
    const auto file = open("d/a");
    ASSERT_TRUE(append(*file, "hello"));
    ASSERT_TRUE(append(*file, " you"));
    Bytes piece(3);
    ASSERT_TRUE(file->read(2, piece));
    EXPECT_EQ(as_text(piece), "llo");
  }
  const auto file = open("d/a");
  EXPECT_EQ(content(*file), "hello you");
  ASSERT_TRUE(append(*file, "!"));
  EXPECT_EQ(content("d/a"), "hello you!");
  EXPECT_EQ(disk.list("d").value()[0].bytes, 10U);
  EXPECT_EQ(disk.open_growing("d/a", Disk::Content::kDropped).value()->size(), 0U);
  EXPECT_EQ(content("d/a"), "");
  ASSERT_TRUE(write("d/b", "old"));
  ASSERT_TRUE(append(*open("d/b"), "er"));
  EXPECT_EQ(content("d/b"), "older");
  const auto nowhere = disk.open_growing("x/a", Disk::Content::kKept);
  EXPECT_EQ(nowhere.error().code(), "file-missing");
  EXPECT_EQ(disk.make_nameless("x").error().code(), "file-missing");
}

TEST_F(GrowingFileTest, TakesRoomAsLongAsItHasANameOrIsOpen) {
  {
    const auto named = open("d/a");
    const auto nameless = disk.make_nameless("d").value();
    ASSERT_TRUE(append(*named, "hello"));
    ASSERT_TRUE(append(*nameless, "you"));
    EXPECT_THAT(names("d"), ElementsAre("a"));
    EXPECT_EQ(disk.bytes(), 8U);
    ASSERT_TRUE(disk.remove("d/a"));
    EXPECT_EQ(content(*named), "hello");
    EXPECT_EQ(disk.bytes(), 8U);
  }
  EXPECT_EQ(disk.bytes(), 0U);
}

TEST_F(GrowingFileTest, OfAFullDiskTakesWhatFits) {
  EXPECT_EQ(disk.free_bytes("d").value(), std::nullopt);
  disk.set_capacity(10);
  ASSERT_TRUE(write("d/b", "four"));
  const auto file = open("d/a");
  EXPECT_EQ(disk.free_bytes("d").value(), 6U);
  const auto full = append(*file, "too long");
  EXPECT_EQ(full.error().code(), "disk-full");
  EXPECT_EQ(full.error().kind(), ErrorKind::kOverloaded);
  EXPECT_EQ(content(*file), "too lo");
  EXPECT_EQ(write("d/c", "x").error().code(), "disk-full");
  ASSERT_TRUE(disk.remove("d/b"));
  EXPECT_TRUE(append(*file, "ng"));
}

TEST_F(GrowingFileTest, KeepsWhatAKilledProcessHadAppended) {
  auto file = open("d/a");
  ASSERT_TRUE(append(*file, "one"));
  for (const Fault fault : {Fault::kFailedSync, Fault::kFull}) {
    next_change(fault);
    EXPECT_FALSE(append(*file, "four"));
    EXPECT_EQ(content(*file), "one");
  }
  next_change(Fault::kCrashBefore);
  expect_crash([&] { return append(*file, "four"); });
  EXPECT_EQ(content("d/a"), "one");
  next_change(Fault::kTornWrite);
  expect_crash([&] { return append(*file, "four"); });
  EXPECT_EQ(content("d/a"), "onefo");
  next_change(Fault::kCrashAfter);
  expect_crash([&] { return append(*file, "four"); });
  EXPECT_EQ(content("d/a"), "onefofour");
}

TEST_F(GrowingFileTest, MayLoseOrDamageThatInAPowerCut) {
  const std::string whole = "hello you";
  std::set<std::string> kinds;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SimulatedDisk cut{7};
    ASSERT_TRUE(cut.make_directory("d", Disk::Access::kShared));
    const std::array<SharedBytes, 1> parts = {SharedBytes::own(to_bytes(as_bytes(whole)))};
    ASSERT_TRUE(cut.write("d/b", parts));
    ASSERT_TRUE(append(*cut.open_growing("d/a", Disk::Content::kKept).value(), whole));
    Rng rng({.seed = seed});
    cut.cut_power(rng);
    EXPECT_EQ(as_text(read_file(cut, "d/b", 100).value()), whole);
    const auto left = read_file(cut, "d/a", 100);
    if (!left) {
      kinds.insert("gone");
    } else if (as_text(*left) == whole) {
      kinds.insert("whole");
    } else {
      kinds.insert(left->size() < whole.size() ? "cut" : "damaged");
    }
  }
  EXPECT_THAT(kinds, ElementsAre("cut", "damaged", "gone", "whole"));
}

}  // namespace
}  // namespace starling::sim
