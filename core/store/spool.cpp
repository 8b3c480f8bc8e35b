// SPDX-License-Identifier: Apache-2.0
#include "core/store/spool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

}  // namespace

Upload::~Upload() {
  if (auto* const file = std::get_if<File>(&room_)) {
    spool_.give_back(*file, received_);
  } else {
    spool_.give_back(std::get<PageBlock>(std::move(room_)));
  }
}

void Upload::restart() {
  if (on_disk()) spool_.written_bytes_ -= received_;
  received_ = 0;
}

ByteView Upload::view() const {
  const auto* const file = std::get_if<File>(&room_);
  const std::byte* const data = file ? file->mapping : std::get<PageBlock>(room_).data();
  return {data, static_cast<std::size_t>(received_)};
}

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
  return append(chunk.subspan(static_cast<std::size_t>(known)));
}

Result<void> Upload::append(ByteView fresh) {
  const auto* const file = std::get_if<File>(&room_);
  if (file == nullptr) {
    std::memcpy(std::get<PageBlock>(room_).data() + received_, fresh.data(), fresh.size());
    received_ += fresh.size();
    return {};
  }
  while (!fresh.empty()) {
    const ssize_t count =
        ::pwrite(file->descriptor, fresh.data(), fresh.size(), static_cast<off_t>(received_));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return disk_error(spool_.options_.directory, "write", count == 0 ? ENOSPC : errno);
    }
    fresh = fresh.subspan(static_cast<std::size_t>(count));
    received_ += static_cast<std::uint64_t>(count);
    spool_.written_bytes_ += static_cast<std::uint64_t>(count);
  }
  return {};
}

UploadSpool::UploadSpool(Options options) : options_(std::move(options)) {
  sweep_temporaries(options_.directory);
}

UploadSpool::~UploadSpool() {
  STARLING_CHECK(memory_uploads_ == 0 && disk_uploads_ == 0);
  release_idle();
}

std::uint64_t UploadSpool::uploads_max(const Options& options, std::uint64_t bytes) {
  return options.memory_bytes_max / round_up(bytes, kAlignment) +
         options.disk_bytes_max / round_up(bytes, kPage);
}

Result<std::unique_ptr<Upload>> UploadSpool::begin(std::uint64_t bytes) {
  const bool fits_memory = bytes <= options_.memory_bytes_max &&
                           round_up(bytes, kAlignment) <= options_.memory_bytes_max;
  const bool fits_disk =
      bytes <= options_.disk_bytes_max && round_up(bytes, kPage) <= options_.disk_bytes_max;
  if (!fits_memory && !fits_disk) {
    return rejected(
        "upload-too-large",
        fmt::format("an upload of {} is more than the spool can ever hold ({} in "
                    "memory, {} on disk); raise its limits",
                    format_byte_count(bytes), format_byte_count(options_.memory_bytes_max),
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

// Null where the memory is used up.
std::unique_ptr<Upload> UploadSpool::begin_in_memory(std::uint64_t bytes) {
  PageBlock buffer = take_buffer(static_cast<std::size_t>(round_up(bytes, kAlignment)));
  if (buffer.size() == 0) return nullptr;
  ++memory_uploads_;
  return std::unique_ptr<Upload>(new Upload(*this, std::move(buffer), bytes));
}

Result<std::unique_ptr<Upload>> UploadSpool::begin_on_disk(std::uint64_t bytes) {
  const auto capacity = static_cast<std::size_t>(round_up(bytes, kPage));
  STARLING_TRY(make_directory(options_.directory, true));
  STARLING_TRY(check_free_space(capacity));
  const int descriptor = open_nameless(options_.directory);
  if (descriptor < 0) return disk_error(options_.directory, "create", errno);
  void* const mapping = ::mmap(nullptr, capacity, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapping == MAP_FAILED) {
    const int cause = errno;
    ::close(descriptor);
    return disk_error(options_.directory, "map", cause);
  }
  disk_bytes_ += capacity;
  ++disk_uploads_;
  const Upload::File file{descriptor, static_cast<const std::byte*>(mapping), capacity};
  return std::unique_ptr<Upload>(new Upload(*this, file, bytes));
}

// Files take their room as they grow; what was promised to others is not free any more.
Result<void> UploadSpool::check_free_space(std::uint64_t capacity) const {
  struct statvfs disk {};
  if (::statvfs(options_.directory.c_str(), &disk) != 0) {
    return disk_error(options_.directory, "create", errno);
  }
  if (disk.f_blocks == 0) return {};  // a file system without a limit of its own
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (disk_bytes_ - written_bytes_ + capacity <= free) return {};
  return disk_error(options_.directory, "promise room for", ENOSPC);
}

// The smallest idle buffer that is large enough and at most half wasted, else a new one, for which
// idle ones of other sizes make room.
PageBlock UploadSpool::take_buffer(std::size_t capacity) {
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->size() < capacity || it->size() / 2 > capacity) continue;
    if (best == idle_.end() || it->size() < best->size()) best = it;
  }
  if (best != idle_.end()) {
    PageBlock buffer = std::move(*best);
    idle_.erase(best);
    return buffer;
  }
  while (capacity > options_.memory_bytes_max - memory_bytes_ && !idle_.empty()) drop_one_idle();
  if (capacity > options_.memory_bytes_max - memory_bytes_) return {};
  memory_bytes_ += capacity;
  return PageBlock(capacity, PageBlock::Pages::kLarge);
}

void UploadSpool::drop_one_idle() {
  memory_bytes_ -= idle_.back().size();
  idle_.pop_back();
}

void UploadSpool::release_idle() {
  while (!idle_.empty()) drop_one_idle();
}

void UploadSpool::give_back(PageBlock buffer) {
  idle_.push_back(std::move(buffer));
  --memory_uploads_;
}

void UploadSpool::give_back(const Upload::File& file, std::uint64_t written) {
  ::munmap(const_cast<std::byte*>(file.mapping), file.capacity);
  ::close(file.descriptor);
  disk_bytes_ -= file.capacity;
  written_bytes_ -= written;
  --disk_uploads_;
}

}  // namespace starling::store
