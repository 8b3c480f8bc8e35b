// SPDX-License-Identifier: Apache-2.0
#include "coordinator/commands/backup_directory.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/disk.h"
#include "core/base/durable_file.h"
#include "core/base/shell_word.h"

namespace starling::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kListingSizeBytes = sizeof(std::uint64_t);
constexpr std::size_t kCopyBytes = 1 << 16;

Error cannot_write_file(const fs::path& path) {
  return rejected("file-unwritable", "cannot write " + path.string() +
                                         "; is the disk full, or the directory not yours?");
}

Error backup_damaged(const std::string& how) {
  return rejected("backup-damaged", how + "; nothing was restored");
}

// Opens a file of the backup `directory`. A link could lead to a file that is not the backup's.
Result<std::unique_ptr<DiskFile>> open_listed(Disk& disk, const fs::path& directory,
                                              const BackupFile& file) {
  std::error_code code;
  const fs::path path = directory / file.path;
  const fs::path real = fs::canonical(path, code);
  if (!code && real != fs::canonical(directory, code) / file.path) {
    return backup_damaged(path.string() + " is a symbolic link or in a directory that is one");
  }
  auto opened = disk.open(path);
  if (!opened) return backup_damaged(opened.error().message());
  if ((*opened)->size() == file.bytes) return opened;
  return backup_damaged(path.string() + " has another size than the manifest says");
}

// Copies and hashes; the file is durable afterwards.
Result<void> copy_checked(const fs::path& directory, const BackupFile& file, const fs::path& to) {
  SystemDisk disk;
  STARLING_ASSIGN(const auto source, open_listed(disk, directory, file));
  const auto fill = [&](const fs::path& temporary) -> Result<void> {
    std::ofstream copy(temporary, std::ios::binary);
    Sha256 hash;
    Bytes piece;
    for (std::uint64_t at = 0; at < file.bytes && copy; at += piece.size()) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, file.bytes - at)));
      if (const auto read = source->read(at, piece); !read) {
        return backup_damaged(read.error().message());
      }
      hash.update(piece);
      copy.write(reinterpret_cast<const char*>(piece.data()),
                 static_cast<std::streamsize>(piece.size()));
    }
    copy.close();
    if (!copy) return cannot_write_file(to);
    if (std::move(hash).finish() == file.sha256) return {};
    return backup_damaged((directory / file.path).string() +
                          " has another SHA-256 than the manifest says");
  };
  STARLING_TRY(make_directory(to.parent_path(), true));
  return write_durably_by(to, fill, {.secret = true});
}

Result<BackupListing> read_manifest(const fs::path& directory) {
  const auto text = read_text_file(directory / kBackupManifest, kBackupListingBytesMax);
  if (!text) {
    return rejected("not-a-backup", directory.string() + " is not a backup of a coordinator: " +
                                        text.error().message());
  }
  const std::string where = (directory / kBackupManifest).string();
  auto listing = parse_backup_listing(*text);
  if (!listing) return listing.error().within(where);
  const auto unchecked =
      std::ranges::find_if(listing->files, [](const BackupFile& file) { return !file.sha256; });
  if (unchecked == listing->files.end()) return listing;
  return rejected("bad-backup", where + " has no SHA-256 of " + unchecked->path);
}

}  // namespace

// --- receiving ----------------------------------------------------------------------------------

Result<BackupReceiver> BackupReceiver::create(const fs::path& path) {
  STARLING_ASSIGN(NewDirectory directory, NewDirectory::create(path));
  return BackupReceiver(std::move(directory));
}

Result<void> BackupReceiver::take(ByteView piece) {
  if (!listing_) STARLING_TRY(take_head(piece));
  while (!piece.empty()) {
    if (opened_ == listing_->files.size() && file_rest_ == 0) {
      return rejected("bad-backup", "more came than the listing says");
    }
    if (file_rest_ == 0) STARLING_TRY(open_next());
    const ByteView part =
        piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), file_rest_)));
    file_.write(reinterpret_cast<const char*>(part.data()),
                static_cast<std::streamsize>(part.size()));
    if (!file_) return cannot_write_file(path(listing_->files[opened_ - 1]));
    hash_->update(part);
    file_rest_ -= part.size();
    piece = piece.subspan(part.size());
    if (file_rest_ > 0) continue;
    STARLING_TRY(close_file());
    STARLING_TRY(make_empty_files());
  }
  return {};
}

// Takes from `piece` what belongs to the head.
Result<void> BackupReceiver::take_head(ByteView& piece) {
  const auto take_up_to = [&](std::size_t size) {
    const ByteView part = piece.first(std::min(piece.size(), size - head_.size()));
    head_.insert(head_.end(), part.begin(), part.end());
    piece = piece.subspan(part.size());
    return head_.size() == size;
  };
  if (head_.size() < kListingSizeBytes && !take_up_to(kListingSizeBytes)) return {};
  const auto size = load_little<std::uint64_t>(head_.data());
  if (size > kBackupListingBytesMax) return rejected("bad-backup", "its listing is too long");
  if (!take_up_to(kListingSizeBytes + static_cast<std::size_t>(size))) return {};
  STARLING_ASSIGN(listing_,
                  parse_backup_listing(as_text(ByteView(head_).subspan(kListingSizeBytes))));
  return make_empty_files();
}

// No piece brings them.
Result<void> BackupReceiver::make_empty_files() {
  while (opened_ < listing_->files.size() && listing_->files[opened_].bytes == 0) {
    STARLING_TRY(open_next());
    STARLING_TRY(close_file());
  }
  return {};
}

Result<void> BackupReceiver::open_next() {
  const BackupFile& file = listing_->files[opened_++];
  const fs::path to = path(file);
  STARLING_TRY(make_directory(to.parent_path(), true));
  file_ = std::ofstream(to, std::ios::binary);
  std::error_code code;
  fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write, code);
  if (!file_ || code) return cannot_write_file(to);
  hash_.emplace();
  file_rest_ = file.bytes;
  return {};
}

Result<void> BackupReceiver::close_file() {
  BackupFile& file = listing_->files[opened_ - 1];
  file_.close();
  if (!file_) return cannot_write_file(path(file));
  file.sha256 = std::move(*hash_).finish();
  hash_.reset();
  return sync_file(path(file));
}

Result<BackupListing> BackupReceiver::finish() && {
  if (!listing_ || file_rest_ > 0 || opened_ < listing_->files.size()) {
    return rejected("bad-backup", "less came than the listing says");
  }
  STARLING_TRY(write_durably(directory_.temporary() / kBackupManifest,
                             as_bytes(to_json_text(*listing_)), {.secret = true}));
  STARLING_TRY(directory_.commit());
  return *std::move(listing_);
}

// --- restoring ----------------------------------------------------------------------------------

Result<void> expect_no_backup(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::exists(directory / kBackupManifest, ignored)) return {};
  return rejected("is-a-backup",
                  fmt::format("{0} is a backup; put it back with: starling-coordinator restore {1} "
                              "--to NEW-DIR",
                              directory.string(), shell_word(directory.string())));
}

Result<BackupListing> restore_backup(const fs::path& from, const fs::path& to) {
  STARLING_ASSIGN(BackupListing listing, read_manifest(from));
  STARLING_ASSIGN(NewDirectory directory, NewDirectory::create(to));
  for (const BackupFile& file : listing.files) {
    STARLING_TRY(copy_checked(from, file, directory.temporary() / file.path));
  }
  STARLING_TRY(directory.commit());
  return listing;
}

}  // namespace starling::coordinator
