// SPDX-License-Identifier: Apache-2.0
#include "core/base/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace starling
