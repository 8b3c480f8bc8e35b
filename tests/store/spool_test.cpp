// SPDX-License-Identifier: Apache-2.0
#include "core/store/spool.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>
#include <limits>
#include <optional>

#include "core/base/rng.h"
#include "tests/support/temporary_directory.h"

namespace starling::store {
namespace {

Bytes pattern(std::size_t size, std::uint64_t seed) {
  Rng rng({.seed = seed, .purpose = Purpose::kTest});
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next_u32());
  return bytes;
}

bool same(ByteView a, ByteView b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

class SpoolTest : public ::testing::Test {
 protected:
  UploadSpool::Options options() const {
    return {.directory = directory_.path() / "spool",
            .memory_bytes_max = 4096,
            .disk_bytes_max = 16384};
  }
  std::size_t files() const {
    std::error_code none;
    std::size_t count = 0;
    for (auto it = std::filesystem::directory_iterator(directory_.path() / "spool", none);
         it != std::filesystem::directory_iterator(); ++it) {
      ++count;
    }
    return count;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(SpoolTest, AnyOrderOfRepeatedChunksGivesTheUpload) {
  UploadSpool spool(options());
  for (const std::size_t size : {1U, 64U, 2048U, 5000U}) {  // the last one on disk
    const Bytes expected = pattern(size, size);
    const auto upload = spool.begin(size).value();
    EXPECT_EQ(upload->on_disk(), size > 4096);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(upload->view().data()) % 64, 0U);
    Rng rng({.seed = size, .purpose = Purpose::kTest});
    while (!upload->complete()) {
      const std::uint64_t offset = rng.below(upload->received() + 1);
      const std::uint64_t count = rng.below(size - offset + 1);
      const std::uint64_t before = upload->received();
      ASSERT_TRUE(upload->write(offset, ByteView(expected).subspan(offset, count)));
      ASSERT_EQ(upload->received(), std::max(before, offset + count));
    }
    EXPECT_TRUE(same(upload->view(), expected));
  }
  EXPECT_EQ(files(), 0U) << "files have no name";
}

TEST_F(SpoolTest, RefusesGapsAndExcess) {
  UploadSpool spool(options());
  const auto upload = spool.begin(10).value();
  const Bytes chunk(4);
  ASSERT_TRUE(upload->write(0, chunk));
  EXPECT_EQ(upload->write(5, chunk).error().code(), "upload-gap");
  EXPECT_EQ(upload->write(7, chunk).error().code(), "upload-range");
  EXPECT_EQ(upload->write(11, {}).error().code(), "upload-range");
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(upload->write(most, chunk).error().code(), "upload-range");
  EXPECT_EQ(upload->received(), 4U);
  EXPECT_EQ(upload->view().size(), 4U);
}

TEST_F(SpoolTest, WhatWasReceivedDoesNotChangeUntilRestarted) {
  UploadSpool spool(options());
  const auto upload = spool.begin(8).value();
  ASSERT_TRUE(upload->write(0, as_bytes("abcd")));
  ASSERT_TRUE(upload->write(2, as_bytes("XXef")));
  EXPECT_EQ(as_text(upload->view()), "abcdef");
  upload->restart();
  EXPECT_EQ(upload->received(), 0U);
  ASSERT_TRUE(upload->write(0, as_bytes("12345678")));
  EXPECT_EQ(as_text(upload->view()), "12345678");
}

TEST_F(SpoolTest, MemoryThenDiskThenNoCredit) {
  UploadSpool spool(options());
  std::vector<std::unique_ptr<Upload>> uploads;
  std::optional<Error> refusal;
  while (!refusal) {
    auto upload = spool.begin(1000);
    if (upload) {
      uploads.push_back(std::move(*upload));
    } else {
      refusal = upload.error();
    }
  }
  // Four in memory, which is then used up, and four pages of disk.
  ASSERT_EQ(uploads.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(uploads[i]->on_disk(), i >= 4);
  EXPECT_EQ(refusal->kind(), ErrorKind::kOverloaded);
  EXPECT_EQ(refusal->code(), "spool-full");
  EXPECT_EQ(spool.disk_bytes(), 16384U);
  uploads.erase(uploads.begin());
  EXPECT_FALSE(spool.begin(1000).value()->on_disk()) << "room that was given back is used again";
  uploads.clear();
  EXPECT_EQ(spool.disk_bytes(), 0U);
}

TEST_F(SpoolTest, WhatNeverFitsIsRefusedForGood) {
  UploadSpool spool(options());
  for (const std::uint64_t bytes :
       {std::uint64_t{16385}, std::uint64_t{1} << 62, std::numeric_limits<std::uint64_t>::max()}) {
    const auto upload = spool.begin(bytes);
    ASSERT_FALSE(upload);
    EXPECT_EQ(upload.error().kind(), ErrorKind::kRejected);
    EXPECT_EQ(upload.error().code(), "upload-too-large");
  }
  EXPECT_TRUE(spool.begin(16384));
}

TEST_F(SpoolTest, MemoryNeverExceedsItsLimitAndIsReused) {
  UploadSpool spool(options());
  Rng rng({.seed = 3, .purpose = Purpose::kTest});
  std::vector<std::unique_ptr<Upload>> uploads;
  for (int i = 0; i < 2000; ++i) {
    if (uploads.size() > 4 || (rng.below(2) == 0 && !uploads.empty())) {
      uploads.erase(uploads.begin() + static_cast<std::ptrdiff_t>(rng.below(uploads.size())));
    } else if (auto upload = spool.begin(rng.below(2049))) {
      uploads.push_back(std::move(*upload));
    }
    ASSERT_LE(spool.memory_bytes(), 4096U);
    ASSERT_LE(spool.disk_bytes(), 16384U);
  }
  uploads.clear();
  spool.release_idle();
  EXPECT_EQ(spool.memory_bytes(), 0U);
  const std::byte* first = spool.begin(2048).value()->view().data();
  EXPECT_EQ(spool.begin(2000).value()->view().data(), first) << "the same buffer again";
  EXPECT_EQ(spool.memory_bytes(), 2048U);
}

TEST_F(SpoolTest, WithoutDiskItStaysInMemory) {
  UploadSpool::Options small = options();
  small.disk_bytes_max = 0;
  UploadSpool spool(small);
  const auto one = spool.begin(2048).value();
  const auto two = spool.begin(2048).value();
  EXPECT_EQ(spool.begin(1).error().code(), "spool-full");
  EXPECT_EQ(spool.begin(4097).error().code(), "upload-too-large");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "spool"));
}

TEST_F(SpoolTest, RemovesWhatACrashLeft) {
  std::filesystem::create_directories(directory_.path() / "spool");
  std::ofstream(directory_.path() / "spool" / ".upload.abcdef.tmp") << "half";
  const UploadSpool spool(options());
  EXPECT_EQ(files(), 0U);
}

// Of the one file in the directory that this process has open, which has no name.
std::uint64_t open_file_bytes(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    const std::string target = std::filesystem::read_symlink(entry.path(), none).string();
    struct stat status {};
    if (target.starts_with(directory.string()) && ::stat(entry.path().c_str(), &status) == 0) {
      return static_cast<std::uint64_t>(status.st_size);
    }
  }
  return 0;
}

TEST_F(SpoolTest, AFileGrowsWithWhatComes) {
  UploadSpool spool(options());
  const auto upload = spool.begin(16384).value();
  EXPECT_EQ(spool.disk_bytes(), 16384U) << "promised";
  EXPECT_EQ(open_file_bytes(options().directory), 0U);
  const Bytes content = pattern(10'000, 1);
  ASSERT_TRUE(upload->write(0, content));
  EXPECT_EQ(open_file_bytes(options().directory), 10'000U);
  EXPECT_TRUE(same(upload->view(), content));
}

TEST_F(SpoolTest, NamesADirectoryThatCannotBe) {
  UploadSpool::Options odd = options();
  odd.directory = directory_.path() / "file" / "spool";
  std::ofstream(directory_.path() / "file") << "x";
  UploadSpool spool(odd);
  EXPECT_EQ(spool.begin(5000).error().code(), "no-directory");
}

TEST_F(SpoolTest, AnUploadMustNotOutliveItsSpool) {
  EXPECT_DEATH(
      {
        std::unique_ptr<Upload> upload;
        UploadSpool spool(options());
        upload = spool.begin(1).value();
      },
      "memory_uploads_ == 0");
}

}  // namespace
}  // namespace starling::store
