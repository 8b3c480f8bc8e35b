// SPDX-License-Identifier: Apache-2.0
#include "core/base/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class SystemDiskTest : public ::testing::Test {
 protected:
  Result<void> write(const fs::path& path, std::string_view content) {
    const SharedBytes parts[] = {{nullptr, as_bytes(content.substr(0, 1))},
                                 {nullptr, as_bytes(content.substr(1))}};
    return disk.write(path, parts);
  }
  std::string content(const fs::path& path) {
    const auto bytes = read_file(disk, path, 100);
    return bytes ? std::string(as_text(*bytes)) : bytes.error().code();
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const DiskEntry& entry : disk.list(root).value()) names.push_back(entry.name);
    return names;
  }

  testing::TemporaryDirectory directory;
  const fs::path root = directory.path();
  SystemDisk disk;
};

TEST_F(SystemDiskTest, WritesReadsRenamesAndRemoves) {
  ASSERT_TRUE(write(root / "b", "hello"));
  EXPECT_EQ(content(root / "b"), "hello");
  ASSERT_TRUE(write(root / "b", "again"));
  ASSERT_TRUE(write(root / "a", "other"));
  EXPECT_THAT(names(), ElementsAre("a", "b"));
  ASSERT_TRUE(disk.rename(root / "b", root / "a"));
  EXPECT_TRUE(disk.sync(root));
  EXPECT_EQ(content(root / "a"), "again");
  EXPECT_TRUE(disk.remove(root / "a"));
  EXPECT_TRUE(disk.remove(root / "a"));
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(SystemDiskTest, NamesWhatCannotBeRead) {
  EXPECT_EQ(content(root / "a"), "file-missing");
  EXPECT_EQ(content(root), "file-unreadable");
  ASSERT_TRUE(write(root / "a", "hello"));
  EXPECT_EQ(read_file(disk, root / "a", 4).error().code(), "file-too-large");
  EXPECT_EQ(disk.rename(root / "b", root / "c").error().code(), "file-missing");
  EXPECT_TRUE(disk.list(root / "nowhere").value().empty());
}

TEST_F(SystemDiskTest, AFileThatIsReadStaysAndTellsWhenItIsCut) {
  ASSERT_TRUE(write(root / "a", "hello"));
  const auto file = disk.open(root / "a").value();
  ASSERT_TRUE(write(root / "a", "other"));
  Bytes piece(3);
  ASSERT_TRUE(file->read(2, piece));
  EXPECT_EQ(as_text(piece), "llo");
  const auto cut = disk.open(root / "a").value();
  fs::resize_file(root / "a", 2);
  EXPECT_EQ(cut->read(0, piece).error().code(), "file-unreadable");
}

TEST_F(SystemDiskTest, DirectoriesOfTheOwnerAreSecret) {
  ASSERT_TRUE(disk.make_directory(root / "s" / "t", Disk::Access::kOwner));
  EXPECT_EQ(fs::status(root / "s" / "t").permissions(), fs::perms::owner_all);
  ASSERT_TRUE(disk.make_directory(root / "p", Disk::Access::kShared));
  EXPECT_NE(fs::status(root / "p").permissions() & fs::perms::group_read, fs::perms::none);
}

TEST_F(SystemDiskTest, SweepsTemporariesOnly) {
  for (const char* name : {".a.x1.tmp", "a.tmp", ".hidden"}) std::ofstream(root / name) << "x";
  sweep_temporaries(disk, root);
  EXPECT_THAT(names(), ElementsAre(".hidden", "a.tmp"));
}

TEST_F(SystemDiskTest, AFileGrowsAndIsContinuedOrBegunAnew) {
  const auto open = [&](Disk::Content kept) { return disk.open_growing(root / "a", kept).value(); };
  {
    const auto file = open(Disk::Content::kKept);
    ASSERT_TRUE(file->append(as_bytes("hello")));
    ASSERT_TRUE(file->append(as_bytes(" you")));
    Bytes piece(3);
    ASSERT_TRUE(file->read(2, piece));
    EXPECT_EQ(as_text(piece), "llo");
  }
  EXPECT_EQ(fs::status(root / "a").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(open(Disk::Content::kKept)->append(as_bytes("!")));
  EXPECT_EQ(content(root / "a"), "hello you!");
  EXPECT_EQ(disk.list(root).value()[0].bytes, 10U);
  EXPECT_EQ(open(Disk::Content::kDropped)->size(), 0U);
  EXPECT_EQ(content(root / "a"), "");
  EXPECT_EQ(disk.open_growing(root / "x" / "a", Disk::Content::kKept).error().code(),
            "file-missing");
  fs::create_symlink(root / "a", root / "link");
  EXPECT_FALSE(disk.open_growing(root / "link", Disk::Content::kKept)) << "it may lead anywhere";
  EXPECT_EQ(disk.list(root).value()[1].bytes, std::nullopt);
}

TEST_F(SystemDiskTest, AFileWithoutANameIsNotListed) {
  const auto file = disk.make_nameless(root).value();
  ASSERT_TRUE(file->append(as_bytes("hello")));
  EXPECT_EQ(file->size(), 5U);
  EXPECT_THAT(names(), ElementsAre());
  EXPECT_GT(disk.free_bytes(root).value().value_or(1), 0U);
  EXPECT_EQ(disk.make_nameless(root / "x").error().code(), "file-missing");
  EXPECT_EQ(disk.free_bytes(root / "x").error().code(), "file-missing");
}

// A process may have a limit on its files, above which a signal would end it by default.
TEST_F(SystemDiskTest, AFileThatReachesALimitHoldsWhatFits) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 7, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto file = disk.make_nameless(root).value();
  const auto appended = file->append(as_bytes("hello you"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code(), "file-too-large");
  EXPECT_EQ(appended.error().kind(), ErrorKind::kOverloaded);
  EXPECT_EQ(file->size(), 7U);
}

}  // namespace
}  // namespace starling
