// SPDX-License-Identifier: Apache-2.0
#include "core/base/durable_directory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/base/durable_file.h"
#include "tests/support/sync_probe.h"
#include "tests/support/temporary_directory.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t entries(const fs::path& directory) {
  return std::distance(fs::directory_iterator(directory), {});
}

TEST(NewDirectory, IsWholeOnceCommitted) {
  const testing::TemporaryDirectory home;
  const fs::path path = home.path() / "copies" / "today";
  auto made = NewDirectory::create(path / "");
  ASSERT_TRUE(made) << made.error().message();
  ASSERT_TRUE(make_directory(made->temporary() / "models" / "1"));
  ASSERT_TRUE(write_durably(made->temporary() / "models" / "1" / "0", as_bytes("model")));
  EXPECT_FALSE(fs::exists(path));
  const testing::SyncProbe probe;
  ASSERT_TRUE(made->commit());
  EXPECT_EQ(read_text_file(path / "models" / "1" / "0", 100).value(), "model");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  EXPECT_EQ(entries(path.parent_path()), 1);
  // Seen by the names of before: two directories within, the whole, and its parent afterwards.
  EXPECT_EQ(probe.synced().size(), 4U);
  EXPECT_EQ(probe.synced().back(), fs::canonical(path.parent_path()));
}

TEST(NewDirectory, LeavesNothingWhereItIsNotCommitted) {
  const testing::TemporaryDirectory home;
  {
    auto made = NewDirectory::create(home.path() / "copy");
    ASSERT_TRUE(made);
    std::ofstream(made->temporary() / "half") << "x";
    const NewDirectory moved = std::move(*made);
    EXPECT_EQ(entries(home.path()), 1);
  }
  EXPECT_EQ(entries(home.path()), 0);
}

TEST(NewDirectory, ReplacesNothingButAnEmptyDirectory) {
  const testing::TemporaryDirectory home;
  const fs::path path = home.path() / "copy";
  fs::create_directory(path);
  auto first = NewDirectory::create(path);
  auto second = NewDirectory::create(path);
  ASSERT_TRUE(first && second);
  std::ofstream(first->temporary() / "file") << "of the first";
  ASSERT_TRUE(first->commit());
  EXPECT_EQ(second->commit().error().code(), "directory-not-empty");
  EXPECT_EQ(NewDirectory::create(path).error().code(), "directory-not-empty");
  EXPECT_EQ(NewDirectory::create(path / "file").error().code(), "directory-not-empty");
  EXPECT_EQ(read_text_file(path / "file", 100).value(), "of the first");
}

// A copy of a key must not stay; whatever the name that the next one is given.
TEST(NewDirectory, RemovesWhatACrashLeftOfAnother) {
  const testing::TemporaryDirectory home;
  const auto alive = NewDirectory::create(home.path() / "monday");
  ASSERT_TRUE(alive);
  const std::string name = alive->temporary().filename().string();
  EXPECT_EQ(name.substr(0, name.size() - 6), ".monday.unfinished-");
  const std::string left = name.substr(0, name.size() - 6) + "000000";
  fs::create_directories(home.path() / left / "ca");
  std::ofstream(home.path() / left / "ca" / "key.pem") << "secret";
  const auto others = {".monday.backup", ".unfinished-000000", "a.unfinished-000000",
                       ".a.unfinished-0", ".monday"};
  for (const char* other : others) fs::create_directory(home.path() / other);
  std::ofstream(home.path() / ".file.unfinished-000000") << "no directory";
  fs::create_directory_symlink(home.path() / ".monday", home.path() / ".link.unfinished-000000");

  const auto next = NewDirectory::create(home.path() / "tuesday");
  ASSERT_TRUE(next);
  EXPECT_FALSE(fs::exists(home.path() / left));
  EXPECT_TRUE(fs::exists(alive->temporary()));
  for (const char* other : others) EXPECT_TRUE(fs::exists(home.path() / other)) << other;
  EXPECT_TRUE(fs::exists(home.path() / ".file.unfinished-000000"));
  EXPECT_TRUE(fs::exists(home.path() / ".link.unfinished-000000"));
}

}  // namespace
}  // namespace starling
