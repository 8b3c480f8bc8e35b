// SPDX-License-Identifier: Apache-2.0
// Files as the shells need them: written whole or not at all and read back after a crash, or
// growing with what comes. The system's own disk, or in a simulation one in memory that fails on
// demand. Errors are those of durable_file.h: a full disk is kOverloaded, a failed fsync or device
// is kInternal.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/shared_bytes.h"

namespace starling {

// A file that is being read; it stays as it was opened, even where its name gets another content.
class DiskFile {
 public:
  virtual ~DiskFile() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `to` from `offset` on. Requires: it is within the size.
  [[nodiscard]] virtual Result<void> read(std::uint64_t offset, MutableByteView to) = 0;
};

// A file that grows at its end, on one thread. What was appended stays when the process is killed;
// a power cut may lose or damage it. Others may read while nothing is appended.
class GrowingFile : public DiskFile {
 public:
  // On failure a part may have been appended: size() says how much. "disk-full" and, where a limit
  // on files is reached, "file-too-large" (kOverloaded).
  [[nodiscard]] virtual Result<void> append(ByteView bytes) = 0;
};

struct DiskEntry {
  std::string name;
  std::filesystem::file_time_type written;
  std::optional<std::uint64_t> bytes;  // of a regular file; none: it is something else
};

class Disk {
 public:
  virtual ~Disk() = default;

  // Replaces `path` durably with the concatenation of `parts`. On failure `path` is as before, or
  // has its new content, which a power cut may undo; a crash may leave a temporary `.NAME.*.tmp`
  // beside it. A disk in memory shares parts that have an owner. The directory must exist.
  [[nodiscard]] virtual Result<void> write(const std::filesystem::path& path,
                                           std::span<const SharedBytes> parts) = 0;
  // "file-missing", "file-unreadable".
  [[nodiscard]] virtual Result<std::unique_ptr<DiskFile>> open(
      const std::filesystem::path& path) = 0;
  enum class Content { kKept, kDropped };  // of a file that is there already
  // Opens a file to append to it, or creates it; only its owner may read it.
  [[nodiscard]] virtual Result<std::unique_ptr<GrowingFile>> open_growing(
      const std::filesystem::path& path, Content content) = 0;
  // A file in `directory` that has no name, so that it is gone with the process.
  [[nodiscard]] virtual Result<std::unique_ptr<GrowingFile>> make_nameless(
      const std::filesystem::path& directory) = 0;
  // What files in `directory` may still take; none: its disk has no limit of its own.
  [[nodiscard]] virtual Result<std::optional<std::uint64_t>> free_bytes(
      const std::filesystem::path& directory) = 0;
  // What is in `directory`, in order of name; nothing where it is missing.
  [[nodiscard]] virtual Result<std::vector<DiskEntry>> list(
      const std::filesystem::path& directory) = 0;
  // Removes a file; an absent one is fine. A power cut may undo this, and a rename, until sync().
  [[nodiscard]] virtual Result<void> remove(const std::filesystem::path& path) = 0;
  [[nodiscard]] virtual Result<void> rename(const std::filesystem::path& from,
                                            const std::filesystem::path& to) = 0;
  // Makes removals and renames in `directory` durable.
  [[nodiscard]] virtual Result<void> sync(const std::filesystem::path& directory) = 0;

  enum class Access { kShared, kOwner };  // mode 0700 where kOwner
  // Creates a directory and its parents durably.
  [[nodiscard]] virtual Result<void> make_directory(const std::filesystem::path& path,
                                                    Access access) = 0;
};

// Files of the system. Any thread.
class SystemDisk : public Disk {
 public:
  Result<void> write(const std::filesystem::path& path,
                     std::span<const SharedBytes> parts) override;
  Result<std::unique_ptr<DiskFile>> open(const std::filesystem::path& path) override;
  Result<std::unique_ptr<GrowingFile>> open_growing(const std::filesystem::path& path,
                                                    Content content) override;
  Result<std::unique_ptr<GrowingFile>> make_nameless(
      const std::filesystem::path& directory) override;
  Result<std::optional<std::uint64_t>> free_bytes(const std::filesystem::path& directory) override;
  Result<std::vector<DiskEntry>> list(const std::filesystem::path& directory) override;
  Result<void> remove(const std::filesystem::path& path) override;
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Result<void> sync(const std::filesystem::path& directory) override;
  Result<void> make_directory(const std::filesystem::path& path, Access access) override;
};

// A whole file of at most `bytes_max`; "file-too-large".
[[nodiscard]] Result<Bytes> read_file(Disk& disk, const std::filesystem::path& path,
                                      std::size_t bytes_max);

// Removes what a crash left: the files named `.*.tmp` directly in `directory`. What cannot be
// removed stays.
void sweep_temporaries(Disk& disk, const std::filesystem::path& directory);

}  // namespace starling
