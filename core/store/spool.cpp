// SPDX-License-Identifier: Apache-2.0
#include "core/store/spool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/durable_file.h"

namespace starling::store {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kPage = 4096;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return std::max<std::uint64_t>((bytes + unit - 1) / unit, 1) * unit;
}

Error disk_error(const std::filesystem::path& directory, const char* doing, int cause) {
  const std::string message =
      fmt::format("cannot {} a file in {}: {}", doing, directory.string(), std::strerror(cause));
  if (cause == ENOSPC || cause == EDQUOT || cause == EFBIG) {
    return overloaded("disk-full", message + "; free some space and it will be tried again");
  }
  if (cause == ENOMEM || cause == EMFILE || cause == ENFILE) {
    return overloaded("spool-full", message);
  }
  return internal("io-error", message);
}

// A file that has no name, so that it is gone with the process; negative with errno set.
int open_nameless(const std::filesystem::path& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string name = (directory / ".upload.XXXXXX.tmp").string();
  const int named = ::mkostemps(name.data(), 4, O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

// Every block is allocated before it is mapped: a full disk is an error here, never a SIGBUS later.
Result<std::byte*> map_new_file(const std::filesystem::path& directory, std::size_t capacity) {
  STARLING_TRY(make_directory(directory, true));
  const int fd = open_nameless(directory);
  if (fd < 0) return disk_error(directory, "create", errno);
  int cause = 0;
  do {
    cause = ::posix_fallocate(fd, 0, static_cast<off_t>(capacity));
  } while (cause == EINTR);
  void* data = MAP_FAILED;
  if (cause == 0) {
    data = ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) cause = errno;
  }
  ::close(fd);
  if (cause != 0) return disk_error(directory, "allocate", cause);
  return static_cast<std::byte*>(data);
}

}  // namespace

Upload::Upload(UploadSpool& spool, std::byte* data, std::size_t capacity, std::uint64_t bytes,
               bool on_disk)
    : spool_(spool), data_(data), capacity_(capacity), bytes_(bytes), on_disk_(on_disk) {}

Upload::~Upload() { spool_.give_back(data_, capacity_, on_disk_); }

Result<void> Upload::write(std::uint64_t offset, ByteView chunk) {
  if (offset > bytes_ || chunk.size() > bytes_ - offset) {
    return rejected("upload-range", fmt::format("a chunk of {} bytes at {} does not fit into the "
                                                "upload of {} bytes",
                                                chunk.size(), offset, bytes_));
  }
  if (offset > received_) {
    return rejected(
        "upload-gap",
        fmt::format("a chunk at {} leaves a gap: the next byte to send is {}", offset, received_));
  }
  const std::uint64_t known = received_ - offset;
  if (chunk.size() <= known) return {};
  const ByteView fresh = chunk.subspan(static_cast<std::size_t>(known));
  std::memcpy(data_ + received_, fresh.data(), fresh.size());
  received_ += fresh.size();
  return {};
}

UploadSpool::UploadSpool(Options options) : options_(std::move(options)) {
  sweep_temporaries(options_.directory);
}

UploadSpool::~UploadSpool() {
  STARLING_CHECK(memory_uploads_ == 0 && disk_uploads_ == 0);
  release_idle();
}

Result<std::unique_ptr<Upload>> UploadSpool::begin(std::uint64_t bytes) {
  const bool fits_memory = bytes <= std::min(options_.spill_bytes, options_.memory_bytes_max) &&
                           round_up(bytes, kAlignment) <= options_.memory_bytes_max &&
                           options_.memory_uploads_max > 0;
  const bool fits_disk =
      bytes <= options_.disk_bytes_max && round_up(bytes, kPage) <= options_.disk_bytes_max;
  if (!fits_memory && !fits_disk) {
    return rejected(
        "upload-too-large",
        fmt::format("an upload of {} is more than the spool can ever hold ({} in "
                    "memory, {} on disk); raise its limits",
                    format_byte_count(bytes),
                    format_byte_count(std::min(options_.spill_bytes, options_.memory_bytes_max)),
                    format_byte_count(options_.disk_bytes_max)));
  }
  if (fits_memory) {
    std::unique_ptr<Upload> upload = begin_in_memory(bytes);
    if (upload) return upload;
  }
  if (fits_disk && round_up(bytes, kPage) <= options_.disk_bytes_max - disk_bytes_) {
    return begin_on_disk(bytes);
  }
  return overloaded("spool-full",
                    fmt::format("no room for an upload of {}: {} in memory and {} on "
                                "disk are taken",
                                format_byte_count(bytes), format_byte_count(memory_bytes_),
                                format_byte_count(disk_bytes_)));
}

// Null where the memory or its uploads are used up.
std::unique_ptr<Upload> UploadSpool::begin_in_memory(std::uint64_t bytes) {
  if (memory_uploads_ == options_.memory_uploads_max) return nullptr;
  const Buffer buffer = take_buffer(static_cast<std::size_t>(round_up(bytes, kAlignment)));
  if (buffer.data == nullptr) return nullptr;
  ++memory_uploads_;
  return std::unique_ptr<Upload>(new Upload(*this, buffer.data, buffer.capacity, bytes, false));
}

Result<std::unique_ptr<Upload>> UploadSpool::begin_on_disk(std::uint64_t bytes) {
  const auto capacity = static_cast<std::size_t>(round_up(bytes, kPage));
  STARLING_ASSIGN(std::byte * data, map_new_file(options_.directory, capacity));
  disk_bytes_ += capacity;
  ++disk_uploads_;
  return std::unique_ptr<Upload>(new Upload(*this, data, capacity, bytes, true));
}

// The smallest idle buffer that is large enough and at most half wasted, else a new one, for which
// idle ones of other sizes make room.
UploadSpool::Buffer UploadSpool::take_buffer(std::size_t capacity) {
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->capacity < capacity || it->capacity / 2 > capacity) continue;
    if (best == idle_.end() || it->capacity < best->capacity) best = it;
  }
  if (best != idle_.end()) {
    const Buffer buffer = *best;
    idle_.erase(best);
    return buffer;
  }
  while (capacity > options_.memory_bytes_max - memory_bytes_ && !idle_.empty()) drop_one_idle();
  if (capacity > options_.memory_bytes_max - memory_bytes_) return {nullptr, 0};
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity));
  if (data != nullptr) memory_bytes_ += capacity;
  return {data, capacity};
}

void UploadSpool::drop_one_idle() {
  std::free(idle_.back().data);
  memory_bytes_ -= idle_.back().capacity;
  idle_.pop_back();
}

void UploadSpool::release_idle() {
  while (!idle_.empty()) drop_one_idle();
}

void UploadSpool::give_back(std::byte* data, std::size_t capacity, bool on_disk) {
  if (on_disk) {
    ::munmap(data, capacity);
    disk_bytes_ -= capacity;
    --disk_uploads_;
    return;
  }
  idle_.push_back({data, capacity});
  --memory_uploads_;
}

}  // namespace starling::store
