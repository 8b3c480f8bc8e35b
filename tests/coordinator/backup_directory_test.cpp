// SPDX-License-Identifier: Apache-2.0
#include "coordinator/commands/backup_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "core/base/durable_file.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What a service sends of these files.
std::string stream_of(const std::vector<std::pair<std::string, std::string>>& files) {
  BackupListing listing{.federation = "kitchen",
                        .created = "2026-11-23T05:00:00Z",
                        .files = {},
                        .notes = {"run 3 evaluates on csv:x.csv"}};
  std::string contents;
  for (const auto& [path, content] : files) {
    listing.files.push_back({path, content.size(), std::nullopt});
    contents += content;
  }
  const std::string text = to_json_text(listing);
  std::string stream(8, 0);
  store_little<std::uint64_t>(reinterpret_cast<std::byte*>(stream.data()), text.size());
  return stream + text + contents;
}

Result<BackupListing> receive(const fs::path& to, std::string_view stream, std::size_t piece) {
  STARLING_ASSIGN(BackupReceiver receiver, BackupReceiver::create(to));
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    STARLING_TRY(receiver.take(as_bytes(stream.substr(at, piece))));
  }
  return std::move(receiver).finish();
}

class BackupDirectoryTest : public ::testing::Test {
 protected:
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(home_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }

  const testing::TemporaryDirectory home_;
  const fs::path backup_ = home_.path() / "backup";
  const fs::path restored_ = home_.path() / "restored";
  const std::string stream_ = stream_of({{"a-empty", ""},
                                         {"ca/key.pem", "secret"},
                                         {"models/1/0.safetensors", std::string(3000, 'm')},
                                         {"models/1/1.safetensors", ""},
                                         {"starling.db", "rows"},
                                         {"z-empty", ""}});
};

TEST_F(BackupDirectoryTest, ComesInAnyPiecesAndIsRestoredFileByFile) {
  for (const std::size_t piece : {1, 7, 1000, 100000}) {
    const auto received = receive(backup_, stream_, piece);
    ASSERT_TRUE(received) << received.error().message();
    EXPECT_EQ(received->files[1].sha256, sha256(as_bytes("secret")));
    const auto restored = restore_backup(backup_, restored_);
    ASSERT_TRUE(restored) << restored.error().message();
    EXPECT_EQ(*restored, *received);
    EXPECT_EQ(read_text_file(restored_ / "ca" / "key.pem", 100).value(), "secret");
    EXPECT_EQ(fs::file_size(restored_ / "models" / "1" / "0.safetensors"), 3000U);
    for (const char* empty : {"a-empty", "models/1/1.safetensors", "z-empty"}) {
      EXPECT_TRUE(fs::is_empty(restored_ / empty)) << empty;
    }
    EXPECT_FALSE(fs::exists(restored_ / kBackupManifest));
    EXPECT_EQ(fs::status(restored_ / "ca").permissions(), fs::perms::owner_all);
    EXPECT_EQ(fs::status(restored_ / "ca" / "key.pem").permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_THAT(entries(), ElementsAre("backup", "restored"));
    fs::remove_all(backup_);
    fs::remove_all(restored_);
  }
}

TEST_F(BackupDirectoryTest, IsNotThereWhereItIsNotWhole) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{5}, std::size_t{40}, stream_.size() - 1}) {
    EXPECT_EQ(receive(backup_, std::string_view(stream_).substr(0, size), 64).error().code(),
              "bad-backup");
  }
  EXPECT_EQ(receive(backup_, stream_ + "x", 64).error().code(), "bad-backup");
  EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(BackupDirectoryTest, NoPathLeadsOutOfIt) {
  for (const char* path : {"../key", "/etc/passwd", "a/../../b", "", "a//b", "a/", "./a", "..",
                           "a b", "manifest.json", "a\nb"}) {
    const auto received = receive(backup_, stream_of({{"starling.db", ""}, {path, "x"}}), 64);
    ASSERT_FALSE(received) << path;
    EXPECT_THAT(received.error().message(), HasSubstr("not a plain one")) << path;
    EXPECT_EQ(received.error().code(), "bad-backup");
  }
  EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(BackupDirectoryTest, EveryDamageIsFoundByTheRestore) {
  ASSERT_TRUE(receive(backup_, stream_, 64));
  for (const char* name : {"ca/key.pem", "models/1/0.safetensors", "starling.db", "z-empty"}) {
    const std::string content = read_text_file(backup_ / name, 10000).value();
    std::string other = content;
    if (other.empty()) other = "x";
    other.back() = static_cast<char>(other.back() ^ 1);
    for (const std::string& wrong : {other, content + "x"}) {
      std::ofstream(backup_ / name) << wrong;
      const auto restored = restore_backup(backup_, restored_);
      ASSERT_FALSE(restored) << name;
      EXPECT_EQ(restored.error().code(), "backup-damaged");
      EXPECT_THAT(restored.error().message(), HasSubstr(name));
    }
    fs::remove(backup_ / name);
    EXPECT_EQ(restore_backup(backup_, restored_).error().code(), "backup-damaged") << name;
    std::ofstream(backup_ / name) << content;
  }
  EXPECT_TRUE(restore_backup(backup_, restored_));
}

TEST_F(BackupDirectoryTest, TheListingHasEachFileOnceAndTheDatabase) {
  const auto why = [&](const std::string& stream) {
    const auto received = receive(backup_, stream, 64);
    return received ? "" : received.error().message();
  };
  EXPECT_THAT(why(stream_of({{"starling.db", "a"}, {"x", ""}, {"starling.db", "b"}})),
              HasSubstr("lists starling.db twice"));
  EXPECT_THAT(why(stream_of({})), HasSubstr("lists no starling.db"));
  EXPECT_THAT(entries(), IsEmpty());
}

// A restore that opened the pipe would wait for its writer.
TEST_F(BackupDirectoryTest, OnlyRegularFilesOfTheBackupAreRestored) {
  ASSERT_TRUE(receive(backup_, stream_, 64));
  const auto expect_damaged = [&](const char* how) {
    const auto restored = restore_backup(backup_, restored_);
    ASSERT_FALSE(restored) << how;
    EXPECT_EQ(restored.error().code(), "backup-damaged");
    EXPECT_THAT(restored.error().message(), HasSubstr("ca/key.pem"));
    EXPECT_THAT(restored.error().message(), HasSubstr(how));
    EXPECT_FALSE(fs::exists(restored_));
  };
  const fs::path outside = home_.path() / "outside";
  fs::rename(backup_ / "ca", outside);
  fs::create_directory_symlink(outside, backup_ / "ca");
  expect_damaged("symbolic link");
  fs::remove(backup_ / "ca");
  fs::create_directory(backup_ / "ca");
  fs::create_symlink(outside / "key.pem", backup_ / "ca" / "key.pem");
  expect_damaged("symbolic link");
  fs::remove(backup_ / "ca" / "key.pem");
  ASSERT_EQ(::mkfifo((backup_ / "ca" / "key.pem").c_str(), 0600), 0);
  expect_damaged("is not a regular file");
}

TEST_F(BackupDirectoryTest, AManifestThatIsNoneIsNamed) {
  ASSERT_TRUE(receive(backup_, stream_, 64));
  const std::string manifest = read_text_file(backup_ / kBackupManifest, 100000).value();
  for (const std::string& wrong :
       {std::string(), manifest.substr(0, manifest.size() / 2), std::string("{}"),
        stream_.substr(8, stream_.find('\n') - 7)}) {  // a listing without SHA-256
    std::ofstream(backup_ / kBackupManifest) << wrong;
    const Error refused = restore_backup(backup_, restored_).error();
    EXPECT_EQ(refused.code(), "bad-backup") << wrong;
    EXPECT_THAT(refused.message(), HasSubstr((backup_ / kBackupManifest).string())) << wrong;
  }
  fs::remove(backup_ / kBackupManifest);
  EXPECT_EQ(restore_backup(backup_, restored_).error().code(), "not-a-backup");
  EXPECT_THAT(entries(), ElementsAre("backup"));
}

}  // namespace
}  // namespace starling::coordinator
