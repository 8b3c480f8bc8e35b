// SPDX-License-Identifier: Apache-2.0
// A directory for the time of a run, gone afterwards unless it is to be kept.
#pragma once

#include <filesystem>

#include "core/base/error.h"

namespace starling {

class ScratchDirectory {
 public:
  enum class Afterwards { kRemoved, kKept };

  // In the system's temporary directory (TMPDIR), for this user only; "cannot-write". Those that
  // processes left there which were killed, so that they could not remove them, go now.
  [[nodiscard]] static Result<ScratchDirectory> make(Afterwards afterwards = Afterwards::kRemoved);
  // Removes it and all in it, unless it is to be kept.
  ~ScratchDirectory();
  ScratchDirectory(ScratchDirectory&& other) noexcept;
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  ScratchDirectory(std::filesystem::path path, int lock_fd, Afterwards afterwards)
      : path_(std::move(path)), lock_fd_(lock_fd), afterwards_(afterwards) {}

  std::filesystem::path path_;
  int lock_fd_;  // the directory, locked while its process lives
  Afterwards afterwards_;
};

}  // namespace starling
