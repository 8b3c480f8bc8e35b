// SPDX-License-Identifier: Apache-2.0
#include "core/base/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/durable_file.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

Error cannot_list(const fs::path& directory, const std::error_code& code) {
  return internal("io-error", "cannot list " + directory.string() + ": " + code.message());
}

// Returns how much of `to` was filled: less where the file ends before.
Result<std::size_t> read_at(int fd, std::uint64_t offset, MutableByteView to, const char* doing,
                            const fs::path& path) {
  std::size_t filled = 0;
  while (filled < to.size()) {
    const ssize_t count =
        ::pread(fd, to.data() + filled, to.size() - filled, static_cast<off_t>(offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(doing, path);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  return filled;
}

class SystemFile final : public DiskFile {
 public:
  SystemFile(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~SystemFile() override { ::close(fd_); }
  SystemFile(const SystemFile&) = delete;
  SystemFile& operator=(const SystemFile&) = delete;

  Result<void> inspect() {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return file_error("inspect", path_);
    if (!S_ISREG(status.st_mode)) {
      return rejected("file-unreadable", path_.string() + " is not a regular file");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
    return {};
  }
  std::uint64_t size() const override { return size_; }
  Result<void> read(std::uint64_t offset, MutableByteView to) override {
    STARLING_ASSIGN(const std::size_t count, read_at(fd_, offset, to, "read", path_));
    if (count == to.size()) return {};
    return rejected("file-unreadable", path_.string() + " ends early: it was cut meanwhile");
  }

 private:
  fs::path path_;
  int fd_;
  std::uint64_t size_ = 0;
};

// Named by its directory: it may have no name.
class SystemGrowingFile final : public GrowingFile {
 public:
  SystemGrowingFile(fs::path directory, int fd) : directory_(std::move(directory)), fd_(fd) {}
  ~SystemGrowingFile() override { ::close(fd_); }
  SystemGrowingFile(const SystemGrowingFile&) = delete;
  SystemGrowingFile& operator=(const SystemGrowingFile&) = delete;

  Result<void> inspect() {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return file_error("read a file in", directory_);
    size_ = static_cast<std::uint64_t>(status.st_size);
    return {};
  }
  std::uint64_t size() const override { return size_; }
  Result<void> read(std::uint64_t offset, MutableByteView to) override {
    STARLING_ASSIGN(const std::size_t count,
                    read_at(fd_, offset, to, "read a file in", directory_));
    if (count == to.size()) return {};
    return internal("io-error", "a file in " + directory_.string() + " ends at " +
                                    std::to_string(offset + count) + " bytes of the " +
                                    std::to_string(size_) + " that were written to it");
  }
  Result<void> append(ByteView bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) errno = ENOSPC;
      if (count <= 0) return write_error();
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      size_ += static_cast<std::uint64_t>(count);
    }
    return {};
  }

 private:
  Error write_error() const {
    if (errno != EFBIG) return file_error("write a file in", directory_);
    return overloaded("file-too-large", "cannot write a file in " + directory_.string() + ": " +
                                            std::strerror(EFBIG) + "; free some space");
  }

  fs::path directory_;
  int fd_;
  std::uint64_t size_ = 0;
};

// Owns the descriptor; negative with errno set: there is none.
Result<std::unique_ptr<GrowingFile>> growing_file(const fs::path& directory, int fd) {
  if (fd < 0) return file_error("create a file in", directory);
  auto file = std::make_unique<SystemGrowingFile>(directory, fd);
  STARLING_TRY(file->inspect());
  return std::unique_ptr<GrowingFile>(std::move(file));
}

}  // namespace

Result<void> SystemDisk::write(const fs::path& path, std::span<const SharedBytes> parts) {
  std::vector<ByteView> views(parts.size());
  std::ranges::transform(parts, views.begin(), &SharedBytes::view);
  return write_durably(path, views);
}

Result<std::unique_ptr<DiskFile>> SystemDisk::open(const fs::path& path) {
  // O_NONBLOCK: opening a pipe would wait for its writer. It changes nothing of a regular file.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return file_error("open", path);
  auto file = std::make_unique<SystemFile>(path, fd);
  STARLING_TRY(file->inspect());
  return std::unique_ptr<DiskFile>(std::move(file));
}

Result<std::unique_ptr<GrowingFile>> SystemDisk::open_growing(const fs::path& path,
                                                              Content content) {
  const int truncate = content == Content::kDropped ? O_TRUNC : 0;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | truncate, 0600);
  return growing_file(path.parent_path(), fd);
}

Result<std::unique_ptr<GrowingFile>> SystemDisk::make_nameless(const fs::path& directory) {
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // not every file system can
    std::string name = (directory / ".nameless.XXXXXX.tmp").string();
    fd = ::mkostemps(name.data(), 4, O_CLOEXEC);
    if (fd >= 0) ::unlink(name.c_str());
  }
  return growing_file(directory, fd);
}

Result<std::optional<std::uint64_t>> SystemDisk::free_bytes(const fs::path& directory) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0) return file_error("create a file in", directory);
  if (disk.f_blocks == 0) return std::optional<std::uint64_t>();
  return std::optional(std::uint64_t{disk.f_bavail} * disk.f_frsize);
}

Result<std::vector<DiskEntry>> SystemDisk::list(const fs::path& directory) {
  std::vector<DiskEntry> entries;
  std::error_code code;
  for (auto it = fs::directory_iterator(directory, code); !code && it != fs::directory_iterator();
       it.increment(code)) {
    std::error_code ignored;  // of a file that goes away meanwhile
    const auto written = it->last_write_time(ignored);
    DiskEntry entry{it->path().filename().string(), written, std::nullopt};
    if (fs::is_regular_file(it->symlink_status(ignored))) {
      const std::uintmax_t bytes = it->file_size(ignored);
      if (!ignored) entry.bytes = bytes;
    }
    entries.push_back(std::move(entry));
  }
  if (code && code != std::errc::no_such_file_or_directory) return cannot_list(directory, code);
  std::ranges::sort(entries, {}, &DiskEntry::name);
  return entries;
}

Result<void> SystemDisk::remove(const fs::path& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return file_error("remove", path);
}

Result<void> SystemDisk::rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return file_error("move", from);
}

Result<void> SystemDisk::sync(const fs::path& directory) { return sync_directory(directory); }

Result<void> SystemDisk::make_directory(const fs::path& path, Access access) {
  return starling::make_directory(path, access == Access::kOwner);
}

Result<Bytes> read_file(Disk& disk, const fs::path& path, std::size_t bytes_max) {
  STARLING_ASSIGN(const auto file, disk.open(path));
  if (file->size() > bytes_max) {
    return rejected("file-too-large", path.string() + " has " + std::to_string(file->size()) +
                                          " bytes; at most " + std::to_string(bytes_max) +
                                          " are allowed here");
  }
  Bytes content(static_cast<std::size_t>(file->size()));
  STARLING_TRY(file->read(0, content));
  return content;
}

void sweep_temporaries(Disk& disk, const fs::path& directory) {
  const auto entries = disk.list(directory);
  if (!entries) return;
  for (const DiskEntry& entry : *entries) {
    if (is_temporary(entry.name)) {
      (void)disk.remove(directory / entry.name);
    }
  }
}

}  // namespace starling
