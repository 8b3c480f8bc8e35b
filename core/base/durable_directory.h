// SPDX-License-Identifier: Apache-2.0
// A new directory that is whole or absent after any crash: filled under a temporary name beside its
// own, made durable with everything in it, then renamed. What a crash leaves, which may hold keys,
// is removed by the next one beside it.
#pragma once

#include <filesystem>

#include "core/base/directory_lock.h"
#include "core/base/error.h"

namespace starling {

class NewDirectory {
 public:
  // `path` must be missing or an empty directory: "directory-not-empty". Makes the temporary
  // `.NAME.unfinished-XXXXXX` (mode 0700) beside it, and parents that are missing. Removes those
  // beside it whose process has ended.
  [[nodiscard]] static Result<NewDirectory> create(const std::filesystem::path& path);
  // Removes the temporary unless it was committed.
  ~NewDirectory();
  NewDirectory(NewDirectory&& other) noexcept;
  NewDirectory& operator=(NewDirectory&&) = delete;

  // Where to write, until the commit.
  const std::filesystem::path& temporary() const { return temporary_; }

  // Requires: called once; the files are durable themselves. Makes every directory in it durable
  // and gives it its name.
  [[nodiscard]] Result<void> commit();

 private:
  NewDirectory(std::filesystem::path path, std::filesystem::path temporary, DirectoryLock lock);

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty once committed or moved from
  DirectoryLock lock_;               // of the temporary
};

}  // namespace starling
