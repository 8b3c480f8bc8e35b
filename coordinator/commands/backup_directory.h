// SPDX-License-Identifier: Apache-2.0
// A backup on disk: the state directory's files under their names, readable by their owner alone,
// and manifest.json with the SHA-256 of each. A backup, and what is restored from it, is whole and
// durable or not there at all.
#pragma once

#include <filesystem>
#include <fstream>

#include "coordinator/service/backup_listing.h"
#include "core/base/bytes.h"
#include "core/base/durable_directory.h"

namespace starling::coordinator {

// Takes what a service sends (see backup_snapshot.h) in any pieces.
class BackupReceiver {
 public:
  // `path` must be missing or empty: "directory-not-empty".
  [[nodiscard]] static Result<BackupReceiver> create(const std::filesystem::path& path);

  // "bad-backup", "file-unwritable"
  [[nodiscard]] Result<void> take(ByteView piece);
  // "bad-backup" where something is missing. Returns what the manifest says.
  [[nodiscard]] Result<BackupListing> finish() &&;

 private:
  explicit BackupReceiver(NewDirectory directory) : directory_(std::move(directory)) {}

  Result<void> take_head(ByteView& piece);
  Result<void> make_empty_files();
  Result<void> open_next();
  Result<void> close_file();
  std::filesystem::path path(const BackupFile& file) const {
    return directory_.temporary() / file.path;
  }

  NewDirectory directory_;
  Bytes head_;
  std::optional<BackupListing> listing_;
  std::size_t opened_ = 0;  // files so far
  std::uint64_t file_rest_ = 0;
  std::ofstream file_;
  std::optional<Sha256> hash_;
};

// "is-a-backup" where a manifest says that `directory` is one. To run a service in it would change
// what `restore` checks.
[[nodiscard]] Result<void> expect_no_backup(const std::filesystem::path& directory);

// Checks every file of the backup in `from` against its manifest while it copies it to `to`, which
// must be missing or empty. "not-a-backup", "bad-backup", "backup-damaged", "directory-not-empty".
[[nodiscard]] Result<BackupListing> restore_backup(const std::filesystem::path& from,
                                                   const std::filesystem::path& to);

}  // namespace starling::coordinator
