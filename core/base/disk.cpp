// SPDX-License-Identifier: Apache-2.0
#include "core/base/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/durable_file.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

Error cannot_list(const fs::path& directory, const std::error_code& code) {
  return internal("io-error", "cannot list " + directory.string() + ": " + code.message());
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
    while (!to.empty()) {
      const ssize_t count = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return file_error("read", path_);
      if (count == 0) {
        return rejected("file-unreadable", path_.string() + " ends early: it was cut meanwhile");
      }
      offset += static_cast<std::uint64_t>(count);
      to = to.subspan(static_cast<std::size_t>(count));
    }
    return {};
  }

 private:
  fs::path path_;
  int fd_;
  std::uint64_t size_ = 0;
};

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

Result<std::vector<DiskEntry>> SystemDisk::list(const fs::path& directory) {
  std::vector<DiskEntry> entries;
  std::error_code code;
  for (auto it = fs::directory_iterator(directory, code); !code && it != fs::directory_iterator();
       it.increment(code)) {
    std::error_code ignored;  // of a file that goes away meanwhile
    const auto written = it->last_write_time(ignored);
    entries.push_back({it->path().filename().string(), written});
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
    if (entry.name.starts_with('.') && entry.name.ends_with(".tmp")) {
      (void)disk.remove(directory / entry.name);
    }
  }
}

}  // namespace starling
