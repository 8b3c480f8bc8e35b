// SPDX-License-Identifier: Apache-2.0
// A directory that one process at a time writes. The lock goes with the process, however it ends.
#pragma once

#include <filesystem>

#include "core/base/file_descriptor.h"

namespace starling {

class DirectoryLock {
 public:
  DirectoryLock() = default;  // of nothing
  // Tries to take it.
  explicit DirectoryLock(const std::filesystem::path& directory);

  bool taken() const { return state_ == State::kTaken; }
  // Another process has it. Neither where the directory is missing, or its file system has no
  // locks.
  bool held_elsewhere() const { return state_ == State::kHeldElsewhere; }

 private:
  enum class State { kNone, kTaken, kHeldElsewhere };

  FileDescriptor directory_;
  State state_ = State::kNone;
};

}  // namespace starling
