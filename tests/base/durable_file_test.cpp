// SPDX-License-Identifier: Apache-2.0
#include "core/base/durable_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "tests/support/sync_probe.h"
#include "tests/support/temporary_directory.h"

namespace starling {
namespace {

TEST(DurableFile, ReplacesWholeAndLeavesNoTemporary) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model";
  ASSERT_TRUE(write_durably(path, as_bytes("one")));
  const ByteView parts[] = {as_bytes("two "), as_bytes("parts")};
  ASSERT_TRUE(write_durably(path, parts));
  EXPECT_EQ(read_text_file(path, 100).value(), "two parts");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(DurableFile, IsFilledByAnotherWriter) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "backup";
  const auto fill = [](const std::filesystem::path& temporary) -> Result<void> {
    std::ofstream(temporary) << "filled";
    return {};
  };
  ASSERT_TRUE(write_durably_by(path, fill, {.secret = true}));
  EXPECT_EQ(read_text_file(path, 100).value(), "filled");
  const auto fail = [](const std::filesystem::path&) -> Result<void> {
    return overloaded("disk-full", "full");
  };
  EXPECT_EQ(write_durably_by(path, fail).error().code(), "disk-full");
  EXPECT_EQ(read_text_file(path, 100).value(), "filled");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(DurableFile, ThatNoMoreFilesMayBeOpenPassesAgain) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model";
  ASSERT_TRUE(write_durably(path, as_bytes("one")));
  // Once before: the sanitizer needs a file of its own at the first call of a virtual function.
  ASSERT_TRUE(read_file(path, 100));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto written = write_durably(path, as_bytes("two"));
  const auto read = read_file(path, 100);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(written.error(), overloaded("too-many-files", written.error().message()));
  EXPECT_EQ(read.error(), overloaded("too-many-files", read.error().message()));
  EXPECT_EQ(read_text_file(path, 100).value(), "one");
}

TEST(DurableFile, SecretsAreOnlyTheOwners) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "key";
  ASSERT_TRUE(write_durably(path, as_bytes("secret"), {.secret = true}));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST(DurableFile, NamesWhatIsWrong) {
  const testing::TemporaryDirectory directory;
  EXPECT_EQ(read_file(directory.path() / "absent", 10).error().code(), "file-missing");
  ASSERT_TRUE(write_durably(directory.path() / "big", as_bytes("0123456789")));
  EXPECT_EQ(read_file(directory.path() / "big", 9).error().code(), "file-too-large");
  EXPECT_EQ(read_file(directory.path(), 9).error().code(), "file-unreadable");
  EXPECT_FALSE(write_durably(directory.path() / "no" / "such" / "file", as_bytes("x")));
}

// So that the same failure is the same message each time, and is logged once.
TEST(DurableFile, NamesTheFileThatIsMeantAndNoTemporary) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "big";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 7, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = write_durably(path, as_bytes("0123456789"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  EXPECT_TRUE(written.error().message().starts_with("cannot write " + path.string() + ": "))
      << written.error().message();
}

TEST(DurableFile, ANewDirectoryIsMadeToLastInEveryParent) {
  const testing::TemporaryDirectory directory;
  const auto& root = directory.path();
  const testing::SyncProbe probe;
  ASSERT_TRUE(make_directory(root / "models" / "1", true));
  EXPECT_TRUE(probe.saw(root)) << "it holds the name of models";
  EXPECT_TRUE(probe.saw(root / "models")) << "it holds the name of 1";
  const auto count = probe.synced().size();
  ASSERT_TRUE(make_directory(root / "models" / "1" / ""));
  EXPECT_EQ(probe.synced().size(), count) << "nothing was made";
}

TEST(DurableFile, ANewDirectoryWhoseParentCannotBeSyncedIsAFailure) {
  const testing::TemporaryDirectory directory;
  testing::SyncProbe probe;
  probe.fail(directory.path());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(make_directory(directory.path() / "models").error().code(), "fsync-failed")
        << "not taken for one that lasts: " << i;
  }
}

TEST(DurableFile, SweepsOnlyTemporaries) {
  const testing::TemporaryDirectory directory;
  std::ofstream(directory.path() / ".a.123.tmp") << "x";
  std::ofstream(directory.path() / "kept.tmp") << "x";
  sweep_temporaries(directory.path());
  EXPECT_FALSE(std::filesystem::exists(directory.path() / ".a.123.tmp"));
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "kept.tmp"));
  EXPECT_TRUE(remove_durably(directory.path() / "kept.tmp"));
  EXPECT_TRUE(remove_durably(directory.path() / "kept.tmp")) << "an absent file is fine";
}

}  // namespace
}  // namespace starling
