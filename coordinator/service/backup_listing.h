// SPDX-License-Identifier: Apache-2.0
// What a backup consists of. The same JSON goes ahead of the files on the wire and, with their
// SHA-256, stands beside them as manifest.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/base/error.h"

namespace starling::coordinator {

inline constexpr std::string_view kBackupManifest = "manifest.json";
inline constexpr std::size_t kBackupListingBytesMax = 256 << 20;

struct BackupFile {
  std::string path;  // within the state directory, with '/'
  std::uint64_t bytes = 0;
  std::optional<Sha256Digest> sha256;  // in a manifest
  friend bool operator==(const BackupFile&, const BackupFile&) = default;
};

struct BackupListing {
  std::string federation;
  std::string created;  // RFC 3339, by the service's clock
  std::vector<BackupFile> files;
  std::vector<std::string> notes;  // sentences: what is not in it and will be needed

  std::uint64_t bytes() const;
  friend bool operator==(const BackupListing&, const BackupListing&) = default;
};

// Names of letters, digits, '.', '-' and '_' that stay within a directory and clash with no
// manifest.
bool is_backup_path(std::string_view path);

std::string to_json_text(const BackupListing& listing);

// "bad-backup" for what is not a listing, has a path that could lead out of its directory or stands
// twice, or lacks the database.
[[nodiscard]] Result<BackupListing> parse_backup_listing(std::string_view text);

}  // namespace starling::coordinator
