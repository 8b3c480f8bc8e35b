// SPDX-License-Identifier: Apache-2.0
#include "core/store/spool.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>
#include <limits>
#include <optional>

#include "core/base/rng.h"
#include "core/base/sanitizers.h"
#include "tests/support/temporary_directory.h"

namespace starling::store {
namespace {

Bytes pattern(std::size_t size, std::uint64_t seed) {
  Rng rng({.seed = seed, .purpose = Purpose::kTest});
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next_u32());
  return bytes;
}

// What was received so far.
Bytes content_of(const Upload& upload) {
  const update::Payload payload = upload.content();
  Bytes content(payload.size());
  EXPECT_TRUE(payload.read(0, content));
  return content;
}

const std::byte* memory_of(const Upload& upload) {
  return upload.content().in_memory()->view().data();
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

bool same(ByteView a, ByteView b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

class SpoolTest : public ::testing::Test {
 protected:
  UploadSpool::Options options() const {
    return {.directory = directory_.path() / "spool",
            .memory_bytes_max = 4096,
            .disk_bytes_max = 16384};
  }
  // Uploads of 2000 bytes and more are kept.
  UploadSpool::Options keeping() const {
    UploadSpool::Options keeping = options();
    keeping.kept_bytes_min = 2000;
    return keeping;
  }
  static UploadKey key(std::uint64_t task, std::uint64_t bytes = 4000, std::uint64_t checksum = 1) {
    return {TaskId(task), RunId(7), bytes, checksum};
  }
  // Of an upload that is begun, gets so many bytes more and is left.
  static void receive(UploadSpool& spool, const UploadKey& key, std::size_t more) {
    const auto upload = spool.begin(key).value();
    const Bytes bytes = pattern(key.bytes, key.task.value());
    ASSERT_TRUE(
        upload->write(upload->received(), ByteView(bytes).subspan(upload->received(), more)));
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

  SystemDisk disk_;
  testing::TemporaryDirectory directory_;
};

TEST_F(SpoolTest, AnyOrderOfRepeatedChunksGivesTheUpload) {
  UploadSpool spool(disk_, options());
  for (const std::size_t size : {1U, 64U, 2048U, 5000U}) {  // the last one on disk
    const Bytes expected = pattern(size, size);
    const auto upload = spool.begin(size).value();
    EXPECT_EQ(upload->on_disk(), size > 4096);
    if (size <= 4096) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory_of(*upload)) % 64, 0U);
    }
    Rng rng({.seed = size, .purpose = Purpose::kTest});
    while (!upload->complete()) {
      const std::uint64_t offset = rng.below(upload->received() + 1);
      const std::uint64_t count = rng.below(size - offset + 1);
      const std::uint64_t before = upload->received();
      ASSERT_TRUE(upload->write(offset, ByteView(expected).subspan(offset, count)));
      ASSERT_EQ(upload->received(), std::max(before, offset + count));
    }
    EXPECT_TRUE(same(content_of(*upload), expected));
  }
  EXPECT_EQ(files(), 0U) << "files have no name";
}

TEST_F(SpoolTest, RefusesGapsAndExcess) {
  UploadSpool spool(disk_, options());
  const auto upload = spool.begin(10).value();
  const Bytes chunk(4);
  ASSERT_TRUE(upload->write(0, chunk));
  EXPECT_EQ(upload->write(5, chunk).error().code(), "upload-gap");
  EXPECT_EQ(upload->write(7, chunk).error().code(), "upload-range");
  EXPECT_EQ(upload->write(11, {}).error().code(), "upload-range");
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(upload->write(most, chunk).error().code(), "upload-range");
  EXPECT_EQ(upload->received(), 4U);
  EXPECT_EQ(content_of(*upload).size(), 4U);
}

TEST_F(SpoolTest, WhatWasReceivedDoesNotChange) {
  UploadSpool spool(disk_, options());
  const auto upload = spool.begin(8).value();
  ASSERT_TRUE(upload->write(0, as_bytes("abcd")));
  ASSERT_TRUE(upload->write(2, as_bytes("XXef")));
  EXPECT_EQ(as_text(content_of(*upload)), "abcdef");
}

TEST_F(SpoolTest, MemoryThenDiskThenNoCredit) {
  UploadSpool spool(disk_, options());
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
  UploadSpool spool(disk_, options());
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
  UploadSpool spool(disk_, options());
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
  const std::byte* first = memory_of(*spool.begin(2048).value());
  EXPECT_EQ(memory_of(*spool.begin(2000).value()), first) << "the same buffer again";
  EXPECT_EQ(spool.memory_bytes(), 2048U);
}

TEST_F(SpoolTest, LargeBuffersCountInWholePages) {
  UploadSpool::Options large = options();
  large.memory_bytes_max = 10 * 4096;
  UploadSpool spool(disk_, large);
  const auto small = spool.begin(4032).value();
  EXPECT_EQ(spool.memory_bytes(), 4032U);
  const auto two = spool.begin(4097).value();
  EXPECT_EQ(spool.memory_bytes(), 4032U + 2 * 4096);
}

TEST_F(SpoolTest, ManySmallBuffersTakeNoMoreThanTheirLimit) {
  UploadSpool::Options small = options();
  small.memory_bytes_max = 64 * 20'000;
  small.disk_bytes_max = 0;
  UploadSpool spool(disk_, small);
  std::vector<std::unique_ptr<Upload>> uploads(20'000);
  const std::uint64_t before = resident_bytes();
  for (int pass = 0; pass < 2; ++pass) {
    for (auto& upload : uploads) {
      upload = spool.begin(64).value();
      ASSERT_TRUE(upload->write(0, Bytes(64)));
    }
    uploads = std::vector<std::unique_ptr<Upload>>(20'000);
  }
  // A sanitizer keeps what was freed, and room around each.
  constexpr std::uint64_t kMore = std::uint64_t{kSanitized ? 64 : 16} << 20;
  EXPECT_LT(resident_bytes(), before + kMore);
}

TEST_F(SpoolTest, WithoutDiskItStaysInMemory) {
  UploadSpool::Options small = options();
  small.disk_bytes_max = 0;
  UploadSpool spool(disk_, small);
  const auto one = spool.begin(2048).value();
  const auto two = spool.begin(2048).value();
  EXPECT_EQ(spool.begin(1).error().code(), "spool-full");
  EXPECT_EQ(spool.begin(4097).error().code(), "upload-too-large");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "spool"));
}

TEST_F(SpoolTest, RemovesWhatACrashLeft) {
  std::filesystem::create_directories(directory_.path() / "spool");
  std::ofstream(directory_.path() / "spool" / ".upload.abcdef.tmp") << "half";
  const UploadSpool spool(disk_, options());
  EXPECT_EQ(files(), 0U);
}

TEST_F(SpoolTest, ALargeUploadIsContinuedByALaterProcess) {
  const Bytes bytes = pattern(4000, 3);
  std::size_t received = 0;
  for (const std::size_t next : {1500U, 2500U, 4000U, 4000U}) {
    UploadSpool spool(disk_, keeping());
    const auto upload = spool.begin(key(3)).value();
    EXPECT_TRUE(upload->on_disk());
    EXPECT_EQ(upload->received(), received);
    EXPECT_EQ(upload->resumed(), received > 0);
    EXPECT_TRUE(same(content_of(*upload), ByteView(bytes).first(received)));
    ASSERT_TRUE(upload->write(0, ByteView(bytes).first(next)));
    received = next;
  }
  EXPECT_EQ(files(), 1U);
}

TEST_F(SpoolTest, ASmallUploadIsLostWithTheProcess) {
  {
    UploadSpool spool(disk_, keeping());
    receive(spool, key(1, 1999), 1000);
  }
  EXPECT_EQ(files(), 0U);
  UploadSpool spool(disk_, keeping());
  EXPECT_EQ(spool.begin(key(1, 1999)).value()->received(), 0U);
}

TEST_F(SpoolTest, AnotherUpdateOfTheTaskIsNotContinued) {
  for (const UploadKey& other : {key(1, 4000, 2), key(1, 4001, 1)}) {
    UploadSpool spool(disk_, keeping());
    receive(spool, key(1), 100);
    EXPECT_EQ(spool.begin(other).value()->received(), 0U);
    EXPECT_EQ(spool.begin(key(1)).value()->received(), 0U) << "the first one is forgotten";
    EXPECT_EQ(files(), 1U) << "an empty one, which the next process removes";
  }
}

TEST_F(SpoolTest, WhatIsDiscardedIsNotContinued) {
  UploadSpool spool(disk_, keeping());
  {
    const auto upload = spool.begin(key(1)).value();
    ASSERT_TRUE(upload->write(0, pattern(3000, 1)));
    upload->discard();
    EXPECT_EQ(files(), 0U);
  }
  EXPECT_EQ(spool.begin(key(1)).value()->received(), 0U);
  spool.forget(TaskId(1));
  EXPECT_EQ(spool.disk_bytes(), 0U);
}

// Reading a mapping of such a file is a SIGBUS.
TEST_F(SpoolTest, AFileThatIsCutIsAnError) {
  UploadSpool spool(disk_, keeping());
  const auto upload = spool.begin(key(1)).value();
  ASSERT_TRUE(upload->write(0, pattern(4000, 1)));
  for (const auto& file : std::filesystem::directory_iterator(options().directory)) {
    std::filesystem::resize_file(file.path(), 1000);
  }
  Bytes out(4000);
  EXPECT_EQ(upload->content().read(0, out).error().code(), "io-error");
  EXPECT_TRUE(upload->content().read(0, MutableByteView(out).first(1000)));
}

TEST_F(SpoolTest, UploadsOfEndedTasksAndRunsAreForgotten) {
  UploadSpool spool(disk_, keeping());
  for (const std::uint64_t task : {1U, 2U, 3U}) receive(spool, key(task), 10);
  UploadKey other = key(4);
  other.run = RunId(8);
  receive(spool, other, 10);
  EXPECT_EQ(spool.disk_bytes(), 4 * 4096U);
  spool.forget(TaskId(1));
  EXPECT_EQ(files(), 3U);
  spool.forget_all_but({TaskId(1), TaskId(2), TaskId(4)});
  EXPECT_EQ(files(), 2U);
  spool.forget(RunId(7));
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(spool.begin(other).value()->received(), 10U);
}

TEST_F(SpoolTest, KeptUploadsCountAndMakeRoom) {
  for (std::uint64_t task = 0; task < 40; ++task) {
    UploadSpool spool(disk_, keeping());
    receive(spool, key(task), 4000);
    EXPECT_EQ(spool.disk_bytes(), 4096 * std::min<std::uint64_t>(task + 1, 4));
    EXPECT_EQ(files(), std::min<std::size_t>(task + 1, 4));
  }
  UploadSpool::Options smaller = keeping();
  smaller.disk_bytes_max = 8192;
  UploadSpool spool(disk_, smaller);
  EXPECT_EQ(files(), 2U);
  const auto one = spool.begin(key(100)).value();
  const auto two = spool.begin(key(101)).value();
  EXPECT_EQ(files(), 2U) << "the two that are being received";
  EXPECT_FALSE(spool.begin(key(102)).value()->on_disk()) << "memory is left";
  const auto memory = spool.begin(4096).value();
  EXPECT_EQ(spool.begin(key(102)).error().code(), "spool-full");
}

TEST_F(SpoolTest, DamagedFilesOfUploadsAreRemoved) {
  const auto directory = directory_.path() / "spool";
  {
    UploadSpool spool(disk_, keeping());
    receive(spool, key(1), 4000);
    receive(spool, key(2), 4000);
  }
  std::ofstream(directory / "1-7-fa0-0000000000000001.upload", std::ios::app) << "more";
  for (const char* name :
       {"x.upload", ".upload", "1-2-3.upload", "1-7-FA0-0000000000000002.upload",
        "1-7-fa0-0000000000000002-3.upload", "1-7-fffffffffffffffff-0000000000000002.upload"}) {
    std::ofstream(directory / name) << "x";
  }
  const std::ofstream empty(directory / "1-7-fa0-000000000000000a.upload");
  UploadSpool spool(disk_, keeping());
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(spool.begin(key(1)).value()->received(), 0U);
  EXPECT_EQ(spool.begin(key(2)).value()->received(), 4000U);
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
  UploadSpool spool(disk_, options());
  const auto upload = spool.begin(16384).value();
  EXPECT_EQ(spool.disk_bytes(), 16384U) << "promised";
  EXPECT_EQ(open_file_bytes(options().directory), 0U);
  const Bytes content = pattern(10'000, 1);
  ASSERT_TRUE(upload->write(0, content));
  EXPECT_EQ(open_file_bytes(options().directory), 10'000U);
  EXPECT_TRUE(same(content_of(*upload), content));
}

TEST_F(SpoolTest, NamesADirectoryThatCannotBe) {
  UploadSpool::Options odd = options();
  odd.directory = directory_.path() / "file" / "spool";
  std::ofstream(directory_.path() / "file") << "x";
  UploadSpool spool(disk_, odd);
  EXPECT_EQ(spool.begin(5000).error().code(), "no-directory");
}

TEST_F(SpoolTest, AnUploadMustNotOutliveItsSpool) {
  EXPECT_DEATH(
      {
        std::unique_ptr<Upload> upload;
        UploadSpool spool(disk_, options());
        upload = spool.begin(1).value();
      },
      "memory_uploads_ == 0");
}

}  // namespace
}  // namespace starling::store
