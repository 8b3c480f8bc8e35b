// SPDX-License-Identifier: Apache-2.0
// Files that are whole or absent after any crash: write a temporary, fsync, rename, fsync the
// directory. A failed fsync is kInternal ("fsync-failed") and is never retried: the page cache may
// already have dropped the data (Rebello et al., ATC'20). A full disk or table: kOverloaded.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/error.h"

namespace starling {

// What `errno` says of "cannot DOING PATH": the kinds and codes that all file operations share.
Error file_error(const char* doing, const std::filesystem::path& path);

struct DurableFileOptions {
  bool secret = false;  // mode 0600 from the first byte; otherwise 0644 less the umask at the start
};

// Replaces `path` with the concatenation of `parts`. On failure `path` is as before, except where
// only the directory could not be synced: then `path` has its new content, which a power cut may
// undo. No temporary remains (`.NAME.XXXX.tmp` may after a crash; see sweep_temporaries).
[[nodiscard]] Result<void> write_durably(const std::filesystem::path& path,
                                         std::span<const ByteView> parts,
                                         DurableFileOptions options = {});
[[nodiscard]] Result<void> write_durably(const std::filesystem::path& path, ByteView content,
                                         DurableFileOptions options = {});

// The same for content that another library writes: `fill` gets the path of the temporary, which
// exists and is empty, and writes it in place.
[[nodiscard]] Result<void> write_durably_by(
    const std::filesystem::path& path,
    const std::function<Result<void>(const std::filesystem::path& temporary)>& fill,
    DurableFileOptions options = {});

// Reads a whole file of at most `bytes_max`; "file-missing", "file-too-large" or "file-unreadable".
[[nodiscard]] Result<Bytes> read_file(const std::filesystem::path& path, std::size_t bytes_max);
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& path,
                                                 std::size_t bytes_max);

// Removes `path` durably; an absent file is fine.
[[nodiscard]] Result<void> remove_durably(const std::filesystem::path& path);

// Makes what was written to a file last.
[[nodiscard]] Result<void> sync_file(const std::filesystem::path& path);

// Makes renames, creations and removals directly in `directory` last.
[[nodiscard]] Result<void> sync_directory(const std::filesystem::path& directory);

// Creates a directory and its parents durably; mode 0700 where `secret`. "no-directory" where a
// file has its name.
[[nodiscard]] Result<void> make_directory(const std::filesystem::path& path, bool secret = false);

// Whether a file of this name is one that a crash left behind: `.*.tmp`.
bool is_temporary(std::string_view name);
// Removes these directly in `directory`.
void sweep_temporaries(const std::filesystem::path& directory);

}  // namespace starling
