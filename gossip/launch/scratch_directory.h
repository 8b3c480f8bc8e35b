// SPDX-License-Identifier: Apache-2.0
// A directory for the time of a run, gone afterwards unless it is kept.
#pragma once

#include <filesystem>

#include "core/base/error.h"

namespace starling::gossip {

class ScratchDirectory {
 public:
  // In the system's temporary directory (TMPDIR), for this user only; "cannot-write".
  [[nodiscard]] static Result<ScratchDirectory> make();
  // Removes it and all in it, unless it is to be kept.
  ~ScratchDirectory();
  ScratchDirectory(ScratchDirectory&& other) noexcept;
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  explicit ScratchDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  bool kept_ = false;
};

}  // namespace starling::gossip
