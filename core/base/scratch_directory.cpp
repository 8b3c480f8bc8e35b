// SPDX-License-Identifier: Apache-2.0
#include "core/base/scratch_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace starling {
namespace {

constexpr const char* kRemovedPrefix = "starling-launch-";
constexpr const char* kKeptPrefix = "starling-kept-";

// The directory, locked for this process; -1 where another one has it or it is not this user's.
int lock(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat opened {};
  struct stat named {};
  // By the time it was locked it may have been removed, or be another one.
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::fstat(fd, &opened) == 0 &&
                      opened.st_uid == ::geteuid() && ::lstat(path.c_str(), &named) == 0 &&
                      named.st_ino == opened.st_ino;
  if (locked) return fd;
  ::close(fd);
  return -1;
}

void remove_abandoned(const std::filesystem::path& parent) {
  std::error_code error;
  std::vector<std::filesystem::path> found;
  std::filesystem::directory_iterator entry(parent, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kRemovedPrefix)) {
      found.push_back(entry->path());
    }
  }
  for (const std::filesystem::path& path : found) {
    const int fd = lock(path);
    if (fd < 0) continue;
    std::filesystem::remove_all(path, error);
    ::close(fd);
  }
}

}  // namespace

Result<ScratchDirectory> ScratchDirectory::make(Afterwards afterwards) {
  // Not temp_directory_path(), which does not say where a directory is missing.
  const char* const named = std::getenv("TMPDIR");
  const std::filesystem::path parent = named != nullptr && *named != '\0' ? named : "/tmp";
  remove_abandoned(parent);
  const char* const prefix = afterwards == Afterwards::kKept ? kKeptPrefix : kRemovedPrefix;
  std::string why = "another process took it away again and again";
  for (int tries = 0; tries < 8; ++tries) {
    std::string pattern = (parent / prefix).string() + "XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      why = std::strerror(errno);
      break;
    }
    // Another one that begins just now may have taken it for abandoned.
    const int fd = lock(pattern);
    if (fd >= 0) return ScratchDirectory(pattern, fd, afterwards);
    ::rmdir(pattern.c_str());
  }
  return rejected("cannot-write", fmt::format("no directory can be made in {}: {}; set TMPDIR to "
                                              "one that can be written to",
                                              parent.string(), why));
}

ScratchDirectory::ScratchDirectory(ScratchDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      afterwards_(other.afterwards_) {}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!path_.empty() && afterwards_ == Afterwards::kRemoved) {
    std::filesystem::remove_all(path_, ignored);
  }
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

}  // namespace starling
