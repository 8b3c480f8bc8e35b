// SPDX-License-Identifier: Apache-2.0
#include "core/base/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/disk.h"
#include "core/base/file_descriptor.h"

namespace starling {

namespace fs = std::filesystem;

Error file_error(const char* doing, const fs::path& path) {
  const int number = errno;
  const std::string message =
      std::string("cannot ") + doing + " " + path.string() + ": " + std::strerror(number);
  if (number == ENOSPC || number == EDQUOT) {
    return overloaded("disk-full", message + "; free some space");
  }
  if (number == EMFILE || number == ENFILE) {
    return overloaded("too-many-files", message);
  }
  if (number == ENOMEM) return overloaded("out-of-memory", message);
  if (number == ENOENT) return rejected("file-missing", message);
  if (number == EACCES || number == EPERM || number == EROFS) {
    return rejected("no-permission", message);
  }
  if (number == EISDIR) return rejected("is-a-directory", message);
  return internal("io-error", message);
}

namespace {

// Read before main(), since reading it sets it for a moment, for all threads.
mode_t read_mask() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}
const mode_t kMask = read_mask();

Result<void> write_all(int fd, ByteView bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return file_error("write", path);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> sync_descriptor(int fd, const fs::path& path) {
  if (::fsync(fd) == 0) return {};
  if (errno == ENOSPC || errno == EDQUOT) return file_error("sync", path);
  return internal("fsync-failed", "fsync of " + path.string() + " failed: " + std::strerror(errno) +
                                      "; what was written may be lost, so this process must stop");
}

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Errors name the file that is meant: a temporary's name is another one each time.
Result<void> set_mode(int fd, const fs::path& path, DurableFileOptions options) {
  if (options.secret) return {};  // mkostemps made it 0600
  if (::fchmod(fd, 0644 & ~kMask) != 0) return file_error("set the mode of", path);
  return {};
}

using Fill = std::function<Result<void>(int fd, const fs::path& temporary)>;

Result<void> fill_temporary(int fd, const fs::path& temporary, const fs::path& path,
                            const Fill& fill, DurableFileOptions options) {
  STARLING_TRY(set_mode(fd, path, options));
  STARLING_TRY(fill(fd, temporary));
  return sync_descriptor(fd, path);
}

Result<void> replace_durably(const fs::path& path, const Fill& fill, DurableFileOptions options) {
  const fs::path directory = directory_of(path);
  std::string name = (directory / ("." + path.filename().string() + ".XXXXXX.tmp")).string();
  FileDescriptor fd(::mkostemps(name.data(), 4, O_CLOEXEC));  // mode 0600
  if (fd.get() < 0) return file_error("create a temporary file beside", path);
  Result<void> result = fill_temporary(fd.get(), name, path, fill, options);
  if (result && fd.close() != 0) result = file_error("close", path);
  if (result && ::rename(name.c_str(), path.c_str()) != 0) result = file_error("rename to", path);
  if (!result) {
    ::unlink(name.c_str());
    return result;
  }
  return sync_directory(directory);
}

// `path` without a slash at its end. A directory lasts once its parent was synced; without that it
// is removed, so that the next call makes and syncs it again.
Result<void> create_durably(const fs::path& path) {
  std::error_code code;
  if (fs::is_directory(path, code)) return {};
  const fs::path parent = directory_of(path);
  STARLING_TRY(create_durably(parent));
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
    return file_error("create the directory", path);
  }
  if (!fs::is_directory(path, code)) {
    return rejected("no-directory", "cannot create the directory " + path.string() +
                                        ": a file of that name exists");
  }
  auto synced = sync_directory(parent);
  if (!synced) ::rmdir(path.c_str());
  return synced;
}

}  // namespace

Result<void> sync_file(const fs::path& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return file_error("open", path);
  return sync_descriptor(fd.get(), path);
}

Result<void> sync_directory(const fs::path& directory) {
  const FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return file_error("open", directory);
  return sync_descriptor(fd.get(), directory);
}

Result<void> write_durably(const fs::path& path, std::span<const ByteView> parts,
                           DurableFileOptions options) {
  return replace_durably(
      path,
      [&](int fd, const fs::path&) -> Result<void> {
        for (ByteView part : parts) STARLING_TRY(write_all(fd, part, path));
        return {};
      },
      options);
}

Result<void> write_durably_by(const fs::path& path,
                              const std::function<Result<void>(const fs::path&)>& fill,
                              DurableFileOptions options) {
  return replace_durably(
      path, [&](int, const fs::path& temporary) { return fill(temporary); }, options);
}

Result<void> write_durably(const fs::path& path, ByteView content, DurableFileOptions options) {
  return write_durably(path, std::span(&content, 1), options);
}

Result<Bytes> read_file(const fs::path& path, std::size_t bytes_max) {
  SystemDisk disk;
  return read_file(disk, path, bytes_max);
}

Result<std::string> read_text_file(const fs::path& path, std::size_t bytes_max) {
  STARLING_ASSIGN(const Bytes content, read_file(path, bytes_max));
  return std::string(as_text(content));
}

Result<void> remove_durably(const fs::path& path) {
  if (::unlink(path.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return file_error("remove", path);
  }
  return sync_directory(directory_of(path));
}

Result<void> make_directory(const fs::path& path, bool secret) {
  STARLING_TRY(create_durably(path.has_filename() ? path : path.parent_path()));
  if (secret && ::chmod(path.c_str(), 0700) != 0) return file_error("set the mode of", path);
  return {};
}

bool is_temporary(std::string_view name) { return name.starts_with('.') && name.ends_with(".tmp"); }

void sweep_temporaries(const fs::path& directory) {
  SystemDisk disk;
  sweep_temporaries(disk, directory);
}

}  // namespace starling
